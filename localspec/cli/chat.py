"""``localspec chat``: the chat in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from localspec.cli.completers import sessions
from localspec.cli.flags import ModelFlags
from localspec.errors import ExitCode, InvalidOptions

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

    app = ChatApp(flags.options(), session=how.session, private=how.private)
    app.run()
    return app.return_code or ExitCode.OK
