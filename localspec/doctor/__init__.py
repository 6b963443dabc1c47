"""Checks of what works on this machine, with remedies."""

from __future__ import annotations

from typing import Literal

import msgspec

from localspec.errors import LocalspecError

Level = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check; ``remedy`` is the command or step that solves a problem, if there is one."""

    name: str
    level: Level
    sentence: str
    remedy: str | None = None


def problem_of(
    name: str, error: LocalspecError, remedy: str | None = None, level: Level = "problem"
) -> Finding:
    """An error as a finding, with its own remedy or a better one."""
    sentence = end_sentence(error.message[:1].upper() + error.message[1:])
    return Finding(name, level, sentence, remedy or error.remedy)


def end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
