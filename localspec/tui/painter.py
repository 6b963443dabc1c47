"""Paints blocks, and text that grows at its end, as lines of a width."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from localspec.tui.look import TAB, Look, Piece, code, join

if TYPE_CHECKING:
    from localspec.tui.blocks import MarkdownBlock

GUTTER = 2
"""columns before each line, for a mark"""
LONGEST = 10_000
"""characters; longer prose is painted as plain text, as parsing it could take long"""
LONGEST_GROWING = 4_000
"""characters; a longer line is broken at its last blank, as it is wrapped whole whenever it grows"""


class GrowingText:
    """Lines that ``paint`` has painted; only the last line of the text is painted again."""

    def __init__(self, paint: Callable[[Text], list[Strip]]) -> None:
        self._paint = paint
        self._ended: list[Strip] = []
        self._line = join([])
        """the text below the last line feed"""
        self._last: list[Strip] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        text = self._line.append_text(join(pieces))
        end = text.plain.rfind("\n")
        if end < 0 and len(text) > LONGEST_GROWING:
            end = text.plain.rfind(" ")
        if end >= 0:
            ended, _, self._line = text.divide([end, end + 1])
            self._ended += self._paint(ended)
        self._last = self._paint(self._line) if self._line else []

    @property
    def lines(self) -> list[Strip]:
        return self._ended + self._last


class Painter:
    """Paints for one width and look. Every line includes its gutter: to show it again costs nothing."""

    def __init__(self, width: int, look: Look, *, by_source: bool = False) -> None:
        self.whole = width
        self.width = max(width - GUTTER, 1)
        """columns of text"""
        self.look = look
        self.by_source = by_source
        """True if answers are painted as raw text, each token in its source's colour, not as Markdown"""
        self.blank = Strip.blank(GUTTER + self.width, look.base)
        self._gutter = Segment(" " * GUTTER, look.base)
        self._console = Console(
            file=io.StringIO(), width=self.width, theme=look.markdown, tab_size=TAB, _environ={}
        )

    def block(self, block: MarkdownBlock) -> list[Strip]:
        # Imported late: the first frame of the chat waits for neither parser nor lexers.
        from localspec.tui.markdown import DEEPEST, Markdown, highlight

        if block.kind == "code":
            plain = self.plain(block)
            plain.append(highlight(block.source, block.language, self.look.code_theme))
            return plain.lines or [self.blank]
        if len(block.source) <= LONGEST and (markdown := Markdown(block.source, self.look)).depth <= DEEPEST:
            strips = self._lines(markdown)
            full = [number for number, strip in enumerate(strips) if strip.text.strip()]
            return strips[full[0] : full[-1] + 1] if full else [self.blank]
        return self.text(block.source, Style.null())

    def plain(self, block: MarkdownBlock) -> GrowingText:
        """A painter without colours for ``block``, which may grow."""
        if block.kind == "prose":
            return self.raw()
        plain = GrowingText(lambda text: self._lines(code(text, self.look)))
        plain.append([(f"{block.label}\n", self.look.muted)] if block.label else [])
        return plain

    def raw(self) -> GrowingText:
        return GrowingText(self._lines)

    def text(self, text: str, under: Style, *, bar: bool = False) -> list[Strip]:
        """Paint text unchanged but wrapped; returns at least one line."""
        gutter = Segment("▎ ", self.look.base + self.look.bar) if bar else self._gutter
        return self._lines(join([(text.removesuffix("\n"), under)]), gutter)

    def mark_chosen(self, line: Strip) -> Strip:
        mark = Strip([Segment("▌ ", self.look.base + self.look.chosen)], GUTTER)
        return Strip.join([mark, line.crop(GUTTER)])

    def _lines(self, renderable: RenderableType, gutter: Segment | None = None) -> list[Strip]:
        lines = self._console.render_lines(renderable, style=self.look.base, pad=True)
        return [Strip([gutter or self._gutter, *line], GUTTER + self.width) for line in lines]
