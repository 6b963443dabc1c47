"""Text that grows at its end, painted as it comes at a price that does not grow with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from localspec.tui.look import Look
from localspec.tui.wrapping import breaks

TAB = 4
Piece = tuple[str, Style]


class Plain:
    """Lines that are full stay as they were painted; only the last one is painted anew.

    Each line begins with ``gutter``; ``margin`` columns at either side of the text are left empty.
    """

    def __init__(self, gutter: Segment, width: int, under: Style, *, margin: int = 0) -> None:
        self._gutter = gutter
        self._margin = margin if width > 2 * margin else 0
        self._width = width - 2 * self._margin
        self._under = under
        self._rest: list[Piece] = []
        """from the beginning of the last line"""
        self._before = 0
        """characters between the last line feed and the last line, which tabs are counted from"""
        self._full: list[Strip] = []
        self._last: list[Strip] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        """More text, each piece in a style of its own."""
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
        """All that was painted."""
        return self._full + self._last

    def _go_on(self, text: str, style: Style) -> None:
        if "\t" in text:
            column = self._before + sum(len(piece) for piece, _ in self._rest)
            text = (" " * (column % TAB) + text).expandtabs(TAB)[column % TAB :]
        if text:
            self._rest.append((text, style))

    def _wrap(self) -> list[Strip]:
        """The lines of what is left, of which the last one stays."""
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


def code(gutter: Segment, width: int, look: Look, label: str) -> Plain:
    """What code can be painted with as it grows; its label stands above it."""
    plain = Plain(gutter, width, look.base + look.plain_code, margin=1)
    plain.append([(f"{label}\n", look.muted)] if label else [])
    return plain


def cut(pieces: Iterable[Piece], offsets: list[int]) -> Iterator[list[Piece]]:
    """``pieces`` between each two of ``offsets``, which go from their beginning to their end."""
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
    """``line`` without the blanks that reach beyond ``width``; half a wide character is a blank."""
    kept = set_cell_size(text, width)
    (cropped,) = cut(line, [0, len(kept)])
    return cropped if kept == text[: len(kept)] else [(kept, Style.null())]
