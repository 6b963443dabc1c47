"""Text that grows at its end, painted as it comes at a price that does not grow with it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from localspec.tui.painter import GUTTER, TAB, Painter

Piece = tuple[str, Style]


class Plain:
    """Lines that are full stay as they were painted; only the last one is painted anew."""

    def __init__(self, painter: Painter, under: Style, *, margin: int = 0) -> None:
        self._painter = painter
        self._under = under
        self._margin = margin
        self._rest = Text(tab_size=TAB)
        self._full: list[Strip] = []
        self._last: list[Strip] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        """More text, each piece in a style of its own."""
        for text, style in pieces:
            self._rest.append(text, style)
        *full, self._rest = self._rest.split("\n", allow_blank=True) or [self._rest]
        for line in full:
            self._full += self._paint(line)
        self._last = self._paint(self._rest) if self._rest else []
        if len(self._last) > 1:
            self._keep_full_lines()

    @property
    def lines(self) -> list[Strip]:
        """All that was painted."""
        return self._full + self._last

    def _keep_full_lines(self) -> None:
        """A line without an end may be as long as the answer: what is wrapped stays as it is."""
        text = self._rest.plain
        words = self._last[-1].text[GUTTER:].strip()
        if words and len(words) < len(text) and text.rstrip().endswith(words):
            self._full += self._last[:-1]
            self._rest = self._rest.divide([text.rindex(words)])[1]
            self._last = self._last[-1:]

    def _paint(self, text: Text) -> list[Strip]:
        return self._painter.text(text, self._under, margin=self._margin)
