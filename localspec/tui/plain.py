"""Text that grows at its end, painted at a cost that does not depend on its length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from localspec.tui.look import Look

TAB = 4
# Leading blanks belong to the first word: code keeps its indentation.
_WORD = re.compile(r"^\s*\S+\s*|\S+\s*")
Piece = tuple[str, Style]


class Plain:
    """Wrapped lines: full ones stay as painted, only the last one is painted again.

    Each line begins with ``gutter``; ``margin`` columns on both sides of the text are left empty.
    """

    def __init__(self, gutter: Segment, width: int, under: Style, *, margin: int = 0) -> None:
        self._gutter = gutter
        self._margin = margin if width > 2 * margin else 0
        self._width = width - 2 * self._margin
        self._under = under
        self._rest: list[Piece] = []
        """the pieces of the last line"""
        self._before = 0
        """characters between the last line feed and the last line; tabs count from that line feed"""
        self._full: list[Strip] = []
        self._last: list[Strip] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        """Append text in styled pieces."""
        for text, style in pieces:
            first, *others = text.split("\n")
            self._go_on(first, style)
            for line in others:
                self._full += self._wrap()
                self._rest, self._before = [], 0
                self._go_on(line, style)
        *full, last = self._wrap()
        self._full += full
        self._last = [last] if self._rest else []

    @property
    def lines(self) -> list[Strip]:
        """All painted lines."""
        return self._full + self._last

    def _go_on(self, text: str, style: Style) -> None:
        if "\t" in text:
            column = self._before + sum(len(piece) for piece, _ in self._rest)
            text = (" " * (column % TAB) + text).expandtabs(TAB)[column % TAB :]
        if text:
            self._rest.append((text, style))

    def _wrap(self) -> list[Strip]:
        """Wrap the rest; its last line becomes the new rest."""
        text = "".join(piece for piece, _ in self._rest)
        cuts = [0, *breaks(text, self._width), len(text)]
        lines = list(cut(self._rest, cuts))
        self._rest = lines[-1]
        self._before += cuts[-2]
        return [self._strip(line) for line in lines]

    def _strip(self, line: list[Piece]) -> Strip:
        segments = [self._gutter]
        if self._margin:
            segments.append(Segment(" " * self._margin, self._under))
        text = "".join(piece for piece, _ in line)
        if (over := cell_len(text) - self._width) > 0:
            line = _cropped(line, text, self._width)
            over = 0
        segments += [Segment(piece, self._under + style) for piece, style in line]
        if blanks := self._margin - over:
            segments.append(Segment(" " * blanks, self._under))
        return Strip(segments, self._gutter.cell_length + self._width + 2 * self._margin)


def breaks(line: str, width: int) -> list[int]:
    """The offsets of line breaks in ``line``; blanks at the end of a line may reach beyond ``width``.

    When the line grows, only words after the last break can be broken differently; Rich's own breaks move
    the blanks after a long word to a line of their own, or not, by how the text comes.
    """
    if len(line) <= width and line.isascii():
        return []
    found: list[int] = []
    column = 0
    for word in _WORD.finditer(line):
        whole = word.group()
        solid = cell_len(whole.rstrip())
        if column and column + solid > width:
            found.append(word.start())
            column = 0
        if solid > width:
            *pieces, last = chop_cells(whole.rstrip(), width)
            offset = word.start()
            for piece in pieces:
                offset += len(piece)
                found.append(offset)
            column = cell_len(last) + cell_len(whole) - solid
        else:
            column += cell_len(whole)
    return found


def code(gutter: Segment, width: int, look: Look, label: str) -> Plain:
    """A painter for code that grows, with its label above it."""
    plain = Plain(gutter, width, look.base + look.plain_code, margin=1)
    plain.append([(f"{label}\n", look.muted)] if label else [])
    return plain


def cut(pieces: Iterable[Piece], offsets: list[int]) -> Iterator[list[Piece]]:
    """``pieces`` cut at ``offsets``, the first and last of which are their beginning and end."""
    rest = iter(pieces)
    text, style = next(rest, ("", Style.null()))
    for begin, end in pairwise(offsets):
        line: list[Piece] = []
        missing = end - begin
        while missing >= len(text) > 0:
            line.append((text, style))
            missing -= len(text)
            text, style = next(rest, ("", Style.null()))
        if missing:
            line.append((text[:missing], style))
            text = text[missing:]
        yield line


def _cropped(line: list[Piece], text: str, width: int) -> list[Piece]:
    """``line`` without the blanks beyond ``width``; half of a wide character becomes a blank."""
    kept = set_cell_size(text, width)
    (cropped,) = cut(line, [0, len(kept)])
    return cropped if kept == text[: len(kept)] else [(kept, Style.null())]
