"""Paints blocks and plain text as lines of a width."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from localspec.tui.look import Look
from localspec.tui.plain import Plain, code

if TYPE_CHECKING:
    from localspec.tui.blocks import Block
    from localspec.tui.markdown import Markdown

GUTTER = 2
"""columns before each line, for a mark"""
LONGEST = 10_000
"""characters; longer prose is painted as plain text, as parsing it could take long"""


class Painter:
    """Paints for one width and look. It has no state: threads may share it.

    Every line includes its gutter, so that showing it again costs nothing.
    """

    def __init__(self, width: int, look: Look) -> None:
        self.whole = width
        self.width = max(width - GUTTER, 1)
        """columns of text"""
        self.look = look
        self.blank = Strip.blank(GUTTER + self.width, look.base)
        """an empty line"""
        self._gutter = Segment(" " * GUTTER, look.base)

    def block(self, block: Block) -> list[Strip]:
        """Paint a finished block, code with its colours."""
        # Imported late: the first frame of the chat waits for neither parser nor lexers.
        from localspec.tui.markdown import DEEPEST, Markdown, highlighted

        if block.kind == "code":
            plain = self.plain(block)
            plain.append(highlighted(block.source, block.language, self.look.code_theme))
            return plain.lines or [self.blank]
        if len(block.source) <= LONGEST and (markdown := Markdown(block.source, self.look)).depth <= DEEPEST:
            return self._lines(markdown)
        return self.text(block.source, Style.null())

    def plain(self, block: Block) -> Plain:
        """A painter without colours for ``block``, which may grow."""
        if block.kind == "code":
            return code(self._gutter, self.width, self.look, block.label)
        return self.raw()

    def raw(self) -> Plain:
        """A painter for plain text that grows."""
        return Plain(self._gutter, self.width, self.look.base)

    def text(self, text: str, under: Style, *, bar: bool = False) -> list[Strip]:
        """Paint text unchanged but wrapped; returns at least one line."""
        look = self.look
        gutter = Segment("▎ ", look.base + look.bar) if bar else self._gutter
        plain = Plain(gutter, self.width, look.base + under)
        plain.append([(text, Style.null())])
        return plain.lines or [self.blank]

    def chosen(self, line: Strip) -> Strip:
        """A line with the mark of the chosen message."""
        mark = Strip([Segment("▌ ", self.look.base + self.look.chosen)], GUTTER)
        return Strip.join([mark, line.crop(GUTTER)])

    def _lines(self, markdown: Markdown) -> list[Strip]:
        # One console for each call: threads must not share it.
        console = Console(
            file=io.StringIO(),
            width=self.width,
            force_terminal=True,
            color_system="truecolor",
            theme=self.look.markdown,
            legacy_windows=False,
            _environ={},
        )
        lines = console.render_lines(markdown, style=self.look.base, pad=True)
        strips = [Strip([self._gutter, *line], GUTTER + self.width) for line in lines]
        full = [number for number, strip in enumerate(strips) if strip.text.strip()]
        return strips[full[0] : full[-1] + 1] if full else [self.blank]
