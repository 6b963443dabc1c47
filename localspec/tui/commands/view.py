"""Commands about what is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.tui.commands.command import COMMANDS

if TYPE_CHECKING:
    from localspec.tui.screens.chat import ChatScreen


@COMMANDS.command("colours", key="ctrl+t")
async def colours(screen: ChatScreen, argument: str) -> None:
    """Show answers as raw text, each token coloured by who proposed it; again: as Markdown."""
    screen.colour()


@COMMANDS.command("quit", key="ctrl+q")
async def leave(screen: ChatScreen, argument: str) -> None:
    """Leave; the daemon goes on."""
    await screen.app.action_quit()
