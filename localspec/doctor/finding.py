"""What one check found."""

from __future__ import annotations

from typing import Literal

import msgspec

from localspec.errors import LocalspecError

Level = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """``remedy`` is the command or step that mends it, where there is something to mend."""

    name: str
    level: Level
    sentence: str
    remedy: str | None = None


def problem_of(name: str, error: LocalspecError) -> Finding:
    """An error as a finding."""
    end = "" if error.message.endswith((".", "!", "?")) else "."
    return Finding(name, "problem", error.message[:1].upper() + error.message[1:] + end, error.remedy)
