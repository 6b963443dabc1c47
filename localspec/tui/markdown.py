"""Markdown for the terminal: Rich's renderer with this package's parser, which leaves nothing out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import _TokenType
from pygments.util import ClassNotFound
from rich import markdown as rich
from rich.console import Console, ConsoleOptions, RenderResult
from rich.rule import Rule
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from localspec.tui.blocks import PARSER, info_of
from localspec.tui.look import Look, Piece, code, join
from localspec.wording import printable

DEEPEST = 15
"""levels of nested blocks that are rendered; the parser drops much deeper ones"""
NARROWEST = 5
"""columns that a table's cell needs at least"""
LONGEST_CODE = 50_000
"""characters; longer code gets no colours, as lexing it would hold the screen up"""
LONGEST_LINE = 500
"""characters of a line; some lexers retry a long one from each of its characters"""


class Markdown(rich.Markdown):
    def __init__(self, source: str, look: Look) -> None:
        # Not Rich's own constructor: it makes a parser, which takes longer than parsing with ours.
        self.look = look
        self.justify, self.style, self.hyperlinks, self.inline_code_lexer = None, "none", False, None
        self.inline_code_theme = ""
        self.parsed = PARSER.parse(source)
        for token in self.parsed:
            token.children = [*_links_shown(token.children or ())]
            for each in (token, *token.children):
                # Without control characters, which the parser may have decoded from references and addresses.
                each.content, each.info = printable(each.content), printable(each.info)

    @property
    def depth(self) -> int:
        """The level of the most nested block, from 0."""
        return max((token.level for token in self.parsed), default=0)


class _Heading(rich.Heading):
    """A heading on the left and without a frame: in a chat it titles a few lines, not a page."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Rule(rich.HorizontalRule):
    """A rule without an empty line below it."""

    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="markdown.hr")


class _Code(rich.CodeBlock):
    """Code in a list or a quotation, in the same look as elsewhere."""

    def __init__(self, token: Token, look: Look) -> None:
        super().__init__("", "")
        self._language, self._label = info_of(token)
        self._look = look

    @classmethod
    def create(cls, markdown: rich.Markdown, token: Token) -> _Code:
        assert isinstance(markdown, Markdown)
        return cls(token, markdown.look)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        source = self.text.plain.removesuffix("\n")
        label = [(f"{self._label}\n", self._look.muted)] if self._label else []
        yield code(join([*label, *highlight(source, self._language, self._look.code_theme)]), self._look)


class _Item(rich.ListItem):
    """A list item whose mark takes only the columns that it needs itself."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._render(console, options, " • ", "markdown.item.bullet")

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        yield from self._render(console, options, f" {number}. ", "markdown.item.number")

    def _render(self, console: Console, options: ConsoleOptions, mark: str, style: str) -> Iterator[Segment]:
        narrowed = options.update(width=max(options.max_width - len(mark), 1))
        lines = console.render_lines(self.elements, narrowed, style=self.style)
        first, others = Segment(mark, console.get_style(style)), Segment(" " * len(mark))
        for number, line in enumerate(lines or [[]]):
            yield others if number else first
            yield from line
            yield Segment.line()


class _Table(rich.TableElement):
    """A table that breaks words too long for a column; with too many columns, its rows become text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            if len(table.columns) * NARROWEST > options.max_width:
                header = [self.header.row] if self.header is not None and self.header.row is not None else []
                for row in (*header, *(self.body.rows if self.body is not None else ())):
                    yield Text(" | ").join(cell.content for cell in row.cells)
                return
            for column in table.columns:
                column.overflow = "fold"
            yield table


Markdown.inlines = rich.Markdown.inlines | {"link", "link_url"}
Markdown.elements = {
    **rich.Markdown.elements,
    "heading_open": _Heading,
    "hr": _Rule,
    "fence": _Code,
    "code_block": _Code,
    "list_item_open": _Item,
    "table_open": _Table,
}


def _links_shown(tokens: Iterable[Token]) -> Iterator[Token]:
    """``tokens`` with each link's address added behind its text, unless the text is the address."""
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


def highlight(code: str, language: str, theme: str) -> Iterator[Piece]:
    """``code`` in styled pieces; one piece without style if the language is unknown or the code too long."""
    lexer: Lexer | None = None
    if language and len(code) <= LONGEST_CODE and max(map(len, code.split("\n"))) <= LONGEST_LINE:
        with suppress(ClassNotFound):
            lexer = get_lexer_by_name(language, stripnl=False, tabsize=0)
    if lexer is None:
        yield code, Style.null()
        return
    end = 0
    for token, text in lexer.get_tokens(code):
        if text := text[: len(code) - end]:  # the lexer appends a line feed
            end += len(text)
            yield text, _style(theme, token)


@lru_cache(maxsize=1024)
def _style(theme: str, token: _TokenType) -> Style:
    style = Syntax.get_theme(theme).get_style_for_token(token)
    return Style(color=style.color, bold=style.bold, italic=style.italic, underline=style.underline)
