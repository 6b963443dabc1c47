"""Syntax highlighting: code in pieces, each in the style of a theme."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import _TokenType
from pygments.util import ClassNotFound
from rich.style import Style
from rich.syntax import Syntax

from localspec.tui.plain import Piece

LONGEST = 200_000
"""characters; longer code gets no colours, as lexing it would take a second"""
LONGEST_LINE = 500
"""characters of a line; some lexers retry a long one from each of its characters"""


def highlighted(code: str, language: str, theme: str) -> Iterator[Piece]:
    """``code`` in styled pieces; one piece without style if the language is unknown or the code too long."""
    lexer = _lexer(language) if _is_quickly_read(code) else None
    if lexer is None:
        yield code, Style.null()
        return
    end = 0
    for token, text in lexer.get_tokens(code):
        if text := text[: len(code) - end]:  # the lexer appends a line feed
            end += len(text)
            yield text, _style(theme, token)


def _is_quickly_read(code: str) -> bool:
    return len(code) <= LONGEST and max(map(len, code.split("\n"))) <= LONGEST_LINE


def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, tabsize=0) if language else None
    except ClassNotFound:
        return None


@lru_cache(maxsize=1024)
def _style(theme: str, token: _TokenType) -> Style:
    style = Syntax.get_theme(theme).get_style_for_token(token)
    return Style(color=style.color, bold=style.bold, italic=style.italic, underline=style.underline)
