"""The command that attaches a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.errors import InvalidOptions
from localspec.tui.attach import mention_of
from localspec.tui.commands.command import COMMANDS

if TYPE_CHECKING:
    from localspec.tui.screens.chat import ChatScreen


async def _files(screen: ChatScreen, typed: str) -> list[str]:
    return await screen.files.like(typed)


@COMMANDS.command("attach", "PATH", values=_files)
async def attach(screen: ChatScreen, argument: str) -> None:
    """Send a file along with the next message; @PATH in its text does the same."""
    if not argument:
        raise InvalidOptions("no file is named", "Write its path after /attach.")
    quoted = len(argument) > 1 and argument[0] == argument[-1] == '"'
    screen.attach(mention_of(argument[1:-1] if quoted else argument))
