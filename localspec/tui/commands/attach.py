"""The command that attaches a file."""

from __future__ import annotations

from localspec.errors import InvalidOptions
from localspec.tui.actions import ChatActions
from localspec.tui.attach import mention_of
from localspec.tui.commands.command import COMMANDS


async def _files(screen: ChatActions, typed: str) -> list[str]:
    return await screen.files.like(typed)


@COMMANDS.command("attach", "PATH", values=_files)
async def attach(screen: ChatActions, argument: str) -> None:
    """Attach a file to the next message; @PATH in its text does the same."""
    if not argument:
        raise InvalidOptions("no path was given", "Write the file's path after /attach.")
    quoted = len(argument) > 1 and argument[0] == argument[-1] == '"'
    screen.attach(mention_of(argument[1:-1] if quoted else argument))
