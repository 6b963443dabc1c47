"""Generated parts of the documentation: a part stands in its page between two comments that name it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"
BEGIN = "<!-- {name}: `python -m assets.docs` writes this -->\n"
END = "<!-- end of {name} -->"


def filled(page: str, name: str, body: str) -> str:
    """Return the page with ``body`` as its part ``name``; raise ValueError if it has no place for it."""
    begin, end = BEGIN.format(name=name), END.format(name=name)
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"the page has no place for {name}")
    return f"{before}{begin}\n{body.strip()}\n\n{end}{after}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; bars and line ends in cells are escaped."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")
