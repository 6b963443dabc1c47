"""Settings for other programs, as ``localspec doctor --clients`` prints them."""

from __future__ import annotations

import itertools
from pathlib import Path

CLIENTS = Path(__file__).parent.parent.parent / "localspec" / "doctor" / "clients.txt"
INDENT = "    "
"""of the lines that are to be copied; others explain them"""


def body() -> str:
    """Return a section for each program."""
    return "\n".join(map(_section, CLIENTS.read_text("utf-8").strip().split("\n\n")))


def _section(text: str) -> str:
    title, *lines = text.split("\n")
    name, colon, note = title.partition(":")
    parts = [f"### {name.strip()}", *([_sentence(note)] if colon else [])]
    for is_code, block in itertools.groupby(lines, lambda line: line.startswith(INDENT)):
        if is_code:
            parts.append("\n".join(("```text", *(line.removeprefix(INDENT) for line in block), "```")))
        else:
            parts.extend(map(_sentence, block))
    return "\n\n".join(parts) + "\n"


def _sentence(note: str) -> str:
    return f"{note.strip()[:1].upper()}{note.strip()[1:]}."
