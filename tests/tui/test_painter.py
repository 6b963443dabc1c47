"""Painting: all text, in lines that are exactly as wide as the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexer import Lexer
from rich.cells import cell_len

from localspec.tui.blocks import MarkdownBlock
from localspec.tui.markdown import LONGEST_CODE, LONGEST_LINE, highlight
from localspec.tui.painter import GUTTER
from tests.tui.looks import painter, texts
from tests.tui.test_blocks import blocks_of, markdown, said


def painted(text: str, width: int = 60) -> list[str]:
    """The lines of a text, block below block."""
    return [line for block in blocks_of(text) for line in texts(painter(width).block(block))]


@pytest.mark.slow
@given(markdown, st.integers(1, 40))
def test_every_line_is_exactly_as_wide_as_the_screen(text: str, width: int) -> None:
    for block in blocks_of(text):
        lines = painter(width).block(block)
        assert lines
        for line in lines:
            assert cell_len(line.text) == line.cell_length == width + GUTTER


@pytest.mark.slow
@given(markdown)
def test_every_letter_is_painted(text: str) -> None:
    for block in blocks_of(text):
        if "|" in block.source or "```" in block.source or "~~~" in block.source:
            continue  # a table drops cells without a column, a fence says its language to the painter alone
        assert said(block.source) in said("".join(texts(painter(60).block(block))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title\n\ntext", ["Title", "text"]),
        ("**bold** and `code`", ["bold and code"]),
        ("a <b>tag</b> & &lt;", ["a <b>tag</b> & <"]),
        ("[name](https://a.example/x)", ["name (https://a.example/x)"]),
        ("<https://a.example>, <a@b.example>", ["https://a.example, a@b.example"]),
        ("[**bold** `x`](y)", ["bold x (y)"]),
        ("![picture](p.png)", ["!picture (p.png)"]),
        ("[x][1]\n\n[1]: https://a.example", ["[x][1]", "[1]: https://a.example"]),
        ("- a\n- b\n  - c", [" • a", " • b", "    • c"]),
        ("9. a\n10. b", [" 9. a", " 10. b"]),
        ("1. a\n   ```py\n   x = 1\n\n   y\n   ```", [" 1. a", "     x = 1", "", "     y"]),
        ("> a\n> b", ["▌ a b"]),
        ("---", ["─" * 60]),
        ("```\n\tx\n\n\n y\n```", ["     x", "", "", "  y"]),
        ("```", [""]),
        ("```py title='a b'\nx\n```", [" title='a b'", " x"]),
        ("```py   a\tb \n```", [" a   b"]),
        ("- ~~~ py c\n  x\n  ~~~", [" •  c", "    x"]),
        ("-", [" •"]),
        ("#", [""]),
        ("a | b\n--|--\nxxx | y", [" a    b", " ──────", " xxx  y"]),
    ],
)
def test_blocks(text: str, expected: list[str]) -> None:
    assert painted(text) == expected


def test_a_table_too_wide_is_read_as_rows() -> None:
    header, rule, row = ("|".join([cell] * 20) for cell in ("h", "-", "word"))
    lines = painted(f"{header}\n{rule}\n{row}", width=30)
    assert " ".join(lines).count("word") == 20


def test_words_too_long_for_a_table_are_whole() -> None:
    lines = painted(f"a | b\n--|--\n{'x' * 50} | {'y' * 50}", width=40)
    assert "".join(lines).count("x") == "".join(lines).count("y") == 50


def test_what_stands_very_deep_is_shown_as_it_was_written() -> None:
    text = "".join("  " * depth + f"- item{depth}\n" for depth in range(40))
    assert [f"item{depth}" in line for depth, line in enumerate(painted(text, 120))] == [True] * 40
    assert painted("> " * 40 + "deep", 90) == ["> " * 40 + "deep"]


def test_code_keeps_its_colours_and_loses_no_line() -> None:
    code = "def f(x):\n    return 'a'\n\n\n"
    lines = painter(40).block(MarkdownBlock("code", code, "python"))
    assert texts(lines) == [" def f(x):", "     return 'a'", "", ""]
    assert len({segment.style for segment in lines[0] if segment.style and segment.text.strip()}) > 2


def test_code_of_an_unknown_language_has_no_colours() -> None:
    for language in ("", "no-such-language"):
        (line,) = painter(40).block(MarkdownBlock("code", "def f(): pass", language))
        assert [segment.text.strip() for segment in line if segment.text.strip()] == ["def f(): pass"]


@pytest.mark.parametrize(
    "source", ["[" * 20_000, "*a " * 10_000, "`" * 20_001, "word" * 10_000, "<" * 30_000]
)
def test_what_takes_long_to_parse_is_shown_as_it_was_written(source: str) -> None:
    assert "".join(texts(painter(80).block(MarkdownBlock("prose", source)))).count(source[0]) == source.count(
        source[0]
    )


@pytest.mark.parametrize(
    ("code", "is_read"),
    [
        ("x = 1\n" * 100, True),
        ("a " * (LONGEST_LINE // 2), True),
        ("x = 1\n" + "a " * LONGEST_LINE + "\n", False),
        ("-" * (LONGEST_LINE + 1), False),
        ("x = 1\n" * LONGEST_CODE, False),
        ("", True),
    ],
)
def test_code_with_a_long_line_is_read_by_no_lexer(
    monkeypatch: pytest.MonkeyPatch, code: str, is_read: bool
) -> None:
    read, get_tokens = list[str](), Lexer.get_tokens

    def counted(self: Lexer, text: str) -> object:
        read.append(text)
        return get_tokens(self, text)

    monkeypatch.setattr(Lexer, "get_tokens", counted)
    for language in ("make", "java", "python"):
        assert "".join(text for text, _ in highlight(code, language, "monokai")) == code
    assert read == [code] * (3 if is_read else 0)
