"""Settings for other programs, as ``localspec doctor --clients`` prints them."""

from __future__ import annotations

from pathlib import Path

CLIENTS = Path(__file__).parent.parent.parent / "localspec" / "doctor" / "clients.txt"


def body() -> str:
    """Return a section for each program."""
    return "\n".join(map(_section, CLIENTS.read_text("utf-8").strip().split("\n\n")))


def _section(text: str) -> str:
    title, *lines = text.split("\n")
    name, colon, note = title.partition(":")
    shown = "\n".join(line.removeprefix("    ") for line in lines)
    told = f"{note.strip()[:1].upper()}{note.strip()[1:]}.\n\n" if colon else ""
    return f"### {name.strip()}\n\n{told}```text\n{shown}\n```\n"
