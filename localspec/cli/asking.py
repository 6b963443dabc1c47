"""Questions to the person at the terminal."""

from __future__ import annotations

import sys

from localspec.cli import output
from localspec.wording import printable

ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def is_possible() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def agrees(question: str, *, otherwise: bool = False) -> bool:
    """Ask until it is answered by yes or no; nothing means ``otherwise``, the end of the input no."""
    question = printable(f"{question} [{'Y/n' if otherwise else 'y/N'}]")
    while True:
        output.note(question)
        said = sys.stdin.readline()
        word = said.strip().lower()
        if said and not word:
            return otherwise
        if not said or word in ANSWERS:
            return ANSWERS.get(word, False)
        output.note("Answer y or n.")
