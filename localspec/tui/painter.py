"""Blocks, plain text and coloured tokens, painted as lines of a width."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.markdown import Heading, Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from textual.strip import Strip

from localspec.tui.blocks import PARSER, Block
from localspec.tui.look import Look

TAB = 4
GUTTER = 2
"""columns before each line, for its mark"""


class _Heading(Heading):
    """A heading on the left and without a frame: in a chat it titles a few lines, not a page."""

    def __rich_console__(self, console: Console, options: object) -> Iterable[Text]:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    """Rich's, of tokens of our own parser."""

    elements = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, source: str, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme)
        self.parsed = PARSER.parse(source)


class Painter:
    """Paints for one width and look. Has no state of its own: a thread may use it.

    Every line begins with a gutter, so that it need not be put together each time it is shown.
    """

    def __init__(self, width: int, look: Look) -> None:
        self.whole = width
        self.width = max(width - GUTTER, 1)
        """columns of text"""
        self.look = look

    def block(self, block: Block) -> list[Strip]:
        """A finished block, code with its colours."""
        if block.kind == "prose":
            return self._lines(_Markdown(block.source, self.look.code_theme), self.look.base)
        return self._lines(
            Syntax(
                block.source,
                block.language or "text",
                theme=self.look.code_theme,
                background_color=self.look.code_background,
                word_wrap=True,
                tab_size=TAB,
                padding=(0, 1),
            ),
            self.look.base,
        )

    def text(self, text: Text, under: Style, *, margin: int = 0, bar: bool = False) -> list[Strip]:
        """Text wrapped, at least one line; ``margin`` columns at each side are left empty."""
        renderable = Padding(text, (0, margin)) if margin else text
        return self._lines(renderable, self.look.base + under, bar=bar)

    def chosen(self, line: Strip) -> Strip:
        """A line with the mark of the message that keys act on."""
        mark = Strip([Segment("▌ ", self.look.base + self.look.chosen)], GUTTER)
        return Strip.join([mark, line.crop(GUTTER)])

    @property
    def blank(self) -> Strip:
        """An empty line."""
        return Strip.blank(self.whole, self.look.base)

    def _lines(self, renderable: RenderableType, base: Style, *, bar: bool = False) -> list[Strip]:
        # A console of its own for each painting: they are not to be shared between threads.
        console = Console(
            file=io.StringIO(),
            width=self.width,
            force_terminal=True,
            color_system="truecolor",
            theme=self.look.markdown,
            legacy_windows=False,
            _environ={},
        )
        lines = console.render_lines(renderable, style=base, pad=True)
        gutter = Segment("▎ " if bar else "  ", self.look.base + self.look.bar)
        return [Strip([gutter, *line], GUTTER + self.width) for line in lines]
