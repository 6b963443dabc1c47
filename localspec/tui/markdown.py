"""Markdown as a terminal shows it: Rich's, of tokens of our own parser, and with nothing left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markdown_it.token import Token
from rich import markdown as rich
from rich.console import Console, ConsoleOptions, RenderResult
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from localspec.tui.blocks import PARSER, info_of
from localspec.tui.highlighting import highlighted
from localspec.tui.look import Look
from localspec.tui.plain import code

DEEPEST = 15
"""how deep blocks may stand in others; the parser leaves out what is much deeper"""
NARROWEST = 5
"""columns that a cell of a table needs"""


class Markdown(rich.Markdown):
    """A piece of Markdown in the colours of a look."""

    def __init__(self, source: str, look: Look) -> None:
        # Not Rich's own beginning: it makes a parser, which takes longer than to use ours.
        self.look = look
        self.justify, self.style, self.hyperlinks, self.inline_code_lexer = None, "none", False, None
        self.inline_code_theme = ""
        self.parsed = PARSER.parse(source)
        for token in self.parsed:
            if token.children:
                token.children = list(_links_shown(token.children))

    @property
    def depth(self) -> int:
        """How deep the deepest block stands in others."""
        return max((token.level for token in self.parsed), default=0)


class _Heading(rich.Heading):
    """On the left and without a frame: in a chat it titles a few lines, not a page."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Rule(rich.HorizontalRule):
    """A line, and none below it."""

    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="markdown.hr")


class _Code(rich.CodeBlock):
    """Code in a list or a quotation; it looks as it does elsewhere."""

    def __init__(self, token: Token, look: Look) -> None:
        super().__init__("", "")
        self._language, self._label = info_of(token)
        self._look = look

    @classmethod
    def create(cls, markdown: rich.Markdown, token: Token) -> _Code:
        assert isinstance(markdown, Markdown)
        return cls(token, markdown.look)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        look = self._look
        plain = code(Segment(""), options.max_width, look, self._label)
        plain.append(highlighted(self.text.plain.removesuffix("\n"), self._language, look.code_theme))
        for line in plain.lines:
            yield from line
            yield Segment.line()


class _Quote(rich.BlockQuote):
    """With a bar before each line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bar = Segment("▌ ", self.style)
        yield from _marked(
            console.render_lines(self.elements, _narrowed(options, 2), style=self.style), bar, bar
        )


class _Item(rich.ListItem):
    """Its mark takes the columns that it needs, whichever others stand in the list."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._render(console, options, " • ", "markdown.item.bullet")

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        yield from self._render(console, options, f" {number}. ", "markdown.item.number")

    def _render(self, console: Console, options: ConsoleOptions, mark: str, style: str) -> Iterator[Segment]:
        lines = console.render_lines(self.elements, _narrowed(options, len(mark)), style=self.style)
        first, others = Segment(mark, console.get_style(style)), Segment(" " * len(mark))
        yield from _marked(lines or [[]], first, others)


class _Table(rich.TableElement):
    """Words too long for a column are broken; rows with too many columns are text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            if len(table.columns) * NARROWEST > options.max_width:
                yield from self._rows()
                return
            for column in table.columns:
                column.overflow = "fold"
            yield table

    def _rows(self) -> Iterator[Text]:
        header = [self.header.row] if self.header is not None and self.header.row is not None else []
        for row in (*header, *(self.body.rows if self.body is not None else ())):
            yield Text(" | ").join(cell.content for cell in row.cells)


Markdown.inlines = rich.Markdown.inlines | {"link", "link_url"}
Markdown.elements = {
    **rich.Markdown.elements,
    "heading_open": _Heading,
    "hr": _Rule,
    "fence": _Code,
    "code_block": _Code,
    "blockquote_open": _Quote,
    "list_item_open": _Item,
    "table_open": _Table,
}


def _links_shown(tokens: Iterable[Token]) -> Iterator[Token]:
    """Where a link leads is said behind it, unless it says so itself: it can be seen, and copied."""
    href, text = "", ""
    for token in tokens:
        if token.type == "link_open":
            href, text = str(token.attrs.get("href", "")), ""
            yield Token("mark_open", "link", 1)
        elif token.type == "link_close":
            yield Token("mark_close", "link", -1)
            if href.removeprefix("mailto:") != text:
                yield Token("text", "", 0, content=" (")
                yield Token("mark_open", "link_url", 1)
                yield Token("text", "", 0, content=href)
                yield Token("mark_close", "link_url", -1)
                yield Token("text", "", 0, content=")")
        else:
            text += token.content
            yield token


def _narrowed(options: ConsoleOptions, columns: int) -> ConsoleOptions:
    return options.update(width=max(options.max_width - columns, 1))


def _marked(lines: list[list[Segment]], first: Segment, others: Segment) -> Iterator[Segment]:
    for number, line in enumerate(lines):
        yield others if number else first
        yield from line
        yield Segment.line()
