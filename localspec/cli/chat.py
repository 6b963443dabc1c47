"""``localspec chat``: the chat in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from localspec.cli import answer
from localspec.cli.completers import sessions
from localspec.cli.flags import ModelFlags
from localspec.errors import ExitCode, InvalidOptions, SessionNotFound

if TYPE_CHECKING:
    from localspec.client import Client

NO_FLAGS = ModelFlags()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChatFlags:
    """Which chat."""

    go_on: Annotated[bool, Parameter(name=["--continue", "-c"])] = False
    "Go on with the last session."
    session: Annotated[str | None, Parameter(completer=sessions)] = None
    "Go on with the session of this id."
    private: bool = False
    "Keep no history, and learn nothing from it."


NO_CHAT_FLAGS = ChatFlags()


def chat(*, how: ChatFlags = NO_CHAT_FLAGS, flags: ModelFlags = NO_FLAGS) -> int:
    """Chat in the terminal; returns the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOptions("a chat needs a terminal", "For one answer, use `localspec run`.")
    flags.check_daemon()
    from localspec.tui.app import ChatApp

    session = how.session or (answer.remote(_last) if how.go_on else None)
    app = ChatApp(flags.options(), session=session, private=how.private)
    app.run()
    return app.return_code or ExitCode.OK


async def _last(client: Client) -> str:
    """The session in which something was said last."""
    sessions = await client.sessions(limit=1)
    if not sessions:
        raise SessionNotFound("there is no session to continue", "Chat without -c first.")
    return sessions[0].session
