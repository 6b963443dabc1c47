"""What one check found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from localspec.errors import LocalspecError

Level = Literal["ok", "warning", "problem"]
SHOWN = 3
"""of many things that are told in a sentence"""


class Finding(msgspec.Struct, frozen=True):
    """``remedy`` is the command or step that mends it, where there is something to mend."""

    name: str
    level: Level
    sentence: str
    remedy: str | None = None


def problem_of(name: str, error: LocalspecError, remedy: str | None = None) -> Finding:
    """An error as a finding, with its own remedy or a better one."""
    return Finding(
        name, "problem", ended(error.message[:1].upper() + error.message[1:]), remedy or error.remedy
    )


def ended(text: str) -> str:
    """A message as a whole sentence."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def some(things: Iterable[str], join: str = ", ") -> str:
    """The first of many, and how many more there are."""
    told = list(things)
    more = [f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    return join.join(told[:SHOWN] + more)
