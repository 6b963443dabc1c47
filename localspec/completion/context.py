"""The context of a gap given to the model, in lines of its file and of others; tokens are cut elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

from localspec.protocol.requests import File

BEFORE, AFTER = 256, 64
"""lines before the cursor's line, and from it on"""
SNAP = 64
"""lines between two possible starts of the window: it moves seldom, so the KV cache stays valid"""
MOST_BEFORE, MOST_AFTER, CUT = 1 << 16, 1 << 14, 1 << 12
"""most characters of both, and characters cut off at once: without a limit, tokenizing a file of one long
line takes a second per keystroke"""
CHUNKS, CHUNK_LINES = 16, 64
SAME, NEAR = 0.9, 0.5
"""likeness above which a piece repeats a more important one, or the text at the cursor"""
AROUND = 32
"""lines on each side that count as being at the cursor"""


def lines_before(prefix: str) -> str:
    """The end of ``prefix``: up to 256 whole lines and the cursor's, from a multiple of 64 lines on, fewer if
    they are long."""
    count = prefix.count("\n")
    first = -(-max(0, count - BEFORE) // SNAP) * SNAP
    window = _last_lines(prefix, count - first)
    return window[-(-max(0, len(window) - MOST_BEFORE) // CUT) * CUT :]


def fewer_before(window: str) -> str:
    """``window`` without its first 64 lines; unchanged if it has fewer."""
    count = window.count("\n")
    return _last_lines(window, count - SNAP) if count >= SNAP else window


def lines_after(suffix: str) -> str:
    """The start of ``suffix``: the rest of the cursor's line and 63 more."""
    suffix = suffix[:MOST_AFTER]
    return "".join(suffix.splitlines(keepends=True)[:AFTER]) if suffix.count("\n") >= AFTER else suffix


def _last_lines(text: str, count: int) -> str:
    """``count`` whole lines and what follows them."""
    at = len(text)
    for _ in range(count + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


def worth_telling(extra: Iterable[File], prefix: str, suffix: str) -> list[File]:
    """The pieces of other files, most important first, with new lines: without those like a more important
    one, or like the text at the cursor."""
    near = _lines(_last_lines(prefix, AROUND) + "\n".join(suffix.split("\n", AROUND)[:AROUND]))
    kept: list[tuple[File, Counter[str]]] = []
    for file in extra:
        text = "".join(file.text[:MOST_AFTER].splitlines(keepends=True)[:CHUNK_LINES])
        lines = _lines(text)
        if not lines or likeness(lines, near) > NEAR or any(likeness(lines, each) > SAME for _, each in kept):
            continue
        kept.append((File(file.path, text), lines))
        if len(kept) == CHUNKS:
            break
    return [file for file, _ in kept]


def _lines(text: str) -> Counter[str]:
    return Counter(stripped for line in text.split("\n") if (stripped := line.strip()))


def likeness(one: Counter[str], other: Counter[str]) -> float:
    """Dice's coefficient of two collections of lines, 0 to 1."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0


def shown_path(path: str | None, workspace: str | None) -> str:
    """A file's path as given to the model: relative to its repository, never with the user's home."""
    if not path:
        return "untitled"
    if workspace and os.path.isabs(path):
        inside = os.path.relpath(path, workspace)
        if not inside.startswith(os.pardir):
            return inside
    return os.path.basename(path) if os.path.isabs(path) else path


def repository(workspace: str | None) -> str:
    return os.path.basename(os.path.normpath(workspace)) if workspace else "project"


class Steady:
    """A number of tokens that follows a measured one in steps, and only when that has clearly changed: text
    cut to it stays the same from keystroke to keystroke."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._now: int | None = None

    def at_most(self, wanted: float) -> int:
        """The largest size up to ``wanted``, else the smallest one; the last size is kept while ``wanted`` is
        0.75 to 2.5 times as large."""
        if self._now is None or not 0.75 * self._now <= wanted <= 2.5 * self._now:
            self._now = max((size for size in self._sizes if size <= wanted), default=self._sizes[0])
        return self._now
