"""``localspec chat``: the chat in the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from localspec.cli.completers import sessions
from localspec.cli.flags import NO_FLAGS, ModelFlags
from localspec.errors import InvalidOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChatFlags:
    go_on: Annotated[bool, Parameter(name=["--continue", "-c"])] = False
    "Continue the last session."
    session: Annotated[str | None, Parameter(completer=sessions)] = None
    "Continue the session of this id."
    private: bool = False
    "Store no history, and learn nothing from this chat."
    tools: tuple[Path, ...] = ()
    "Tools that the model may call: FILE.py or FILE.json (MCP)."
    yes: bool = False
    "Download the default model without a question, if it is needed and not here."


NO_CHAT_FLAGS = ChatFlags()


def chat(*, how: ChatFlags = NO_CHAT_FLAGS, flags: ModelFlags = NO_FLAGS) -> int:
    """Chat in the terminal; returns the exit code."""
    from localspec.cli.begin import begin  # loads the whole screen

    flags.check_daemon()
    if how.private and (how.go_on or how.session is not None):
        raise InvalidOptions(
            "--private cannot be combined with -c or --session: a stored session cannot become private",
            "Drop --private, or start a new chat.",
        )
    where: dict[str, Any] = {"session": how.session, "go_on": how.go_on, "private": how.private}
    return begin(flags.options(), **where, yes=how.yes, tools=how.tools)
