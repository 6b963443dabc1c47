"""Yes-or-no questions to the user at the terminal."""

from __future__ import annotations

import sys

from localspec.cli import output
from localspec.errors import InvalidOptions
from localspec.wording import printable

ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def is_possible() -> bool:
    """Return True if stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirms(question: str) -> bool:
    """Ask for a confirmation; raises :class:`InvalidOptions` without a terminal."""
    if not is_possible():
        raise InvalidOptions(
            "stdin is not a terminal, so the confirmation cannot be asked", "Add --yes to go on without it."
        )
    return agrees(question)


def agrees(question: str, *, otherwise: bool = False) -> bool:
    """Ask until the answer is yes or no; an empty line means ``otherwise``, the end of the input no."""
    question = printable(f"{question} [{'Y/n' if otherwise else 'y/N'}]")
    while True:
        output.note(question)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if line and not word:
            return otherwise
        if not line or word in ANSWERS:
            return ANSWERS.get(word, False)
        output.note("Answer y or n.")
