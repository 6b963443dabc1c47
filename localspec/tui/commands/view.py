"""Commands that change the view."""

from __future__ import annotations

from localspec.errors import InvalidOptions
from localspec.protocol.options import unknown_key
from localspec.tui.actions import ChatActions
from localspec.tui.commands.command import COMMANDS
from localspec.tui.commands.messages import last_answer
from localspec.tui.commands.sessions import may_leave


@COMMANDS.command("colours", key="ctrl+t")
async def colours(screen: ChatActions, argument: str) -> None:
    """Show answers as raw text, each token coloured by its proposer; again: as Markdown."""
    screen.colour()


@COMMANDS.command("stats")
async def stats(screen: ChatActions, argument: str) -> None:
    """Show or hide the statistics of the last answer."""
    screen.details(last_answer(screen))


@COMMANDS.command("theme", "[NAME]")
async def theme(screen: ChatActions, argument: str) -> None:
    """Choose the colours, by name or from a list; kept for later chats."""
    app = screen.app
    if not argument:
        app.search_themes()
    elif argument in app.available_themes:
        app.theme = argument
    else:
        raise InvalidOptions(
            unknown_key("theme", argument, [*app.available_themes]), "/theme without a name lists them."
        )


@COMMANDS.command("help", key="f1")
async def help(screen: ChatActions, argument: str) -> None:
    """Show all commands and keys."""
    screen.help()


@COMMANDS.command("quit", key="ctrl+q")
async def leave(screen: ChatActions, argument: str) -> None:
    """Leave the chat; the daemon keeps running."""
    if await may_leave(screen):
        screen.app.exit()
