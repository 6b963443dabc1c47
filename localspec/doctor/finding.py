"""The result of one check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from localspec.errors import LocalspecError

Level = Literal["ok", "warning", "problem"]
SHOWN = 3
"""things named in a sentence; the others are counted"""


class Finding(msgspec.Struct, frozen=True):
    """``remedy`` is the command or step that solves a problem; None if there is none."""

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
    """The first things of many, and the number of the others."""
    named = list(things)
    more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
    return join.join(named[:SHOWN] + more)
