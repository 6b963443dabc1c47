"""Text that grows at its end: what is above its last line feed stays as painted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from localspec.tui.look import Look

TAB = 4
LONGEST = 4_000
"""characters; a longer line is broken at its last blank, as it is wrapped whole whenever it grows"""
Piece = tuple[str, Style]


class GrowingText:
    """Lines that ``paint`` has painted; only the last line of the text is painted again."""

    def __init__(self, paint: Callable[[Text], list[Strip]]) -> None:
        self._paint = paint
        self._ended: list[Strip] = []
        self._line = join([])
        """the text below the last line feed"""
        self._last: list[Strip] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        """Append text in styled pieces."""
        text = self._line.append_text(join(pieces))
        end = text.plain.rfind("\n")
        if end < 0 and len(text) > LONGEST:
            end = text.plain.rfind(" ")
        if end >= 0:
            ended, _, self._line = text.divide([end, end + 1])
            self._ended += self._paint(ended)
        self._last = self._paint(self._line) if self._line else []

    @property
    def lines(self) -> list[Strip]:
        """All painted lines."""
        return self._ended + self._last


def join(pieces: Iterable[Piece]) -> Text:
    """Text in styled pieces, none of which is cut off: too long words are broken."""
    return Text.assemble(*pieces, overflow="fold", tab_size=TAB)


def code(text: Text, look: Look) -> Padding:
    """Code on its own background."""
    return Padding(text, (0, 1), style=look.plain_code)
