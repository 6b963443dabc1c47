"""Painting: all text, at once or as it grows, in lines that are exactly as wide as the screen."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from localspec.tui.blocks import MarkdownBlock
from localspec.tui.markdown import LONGEST_CODE, LONGEST_LINE, highlight
from localspec.tui.painter import GUTTER, LONGEST_GROWING, GrowingText
from tests.tui.showing import painter, texts
from tests.tui.test_blocks import blocks_of, markdown, said


def painted(text: str, width: int = 60) -> list[str]:
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
        ("> a\n> b", ["▌ a", "▌ b"]),
        ("Rain falls,\n*softly*\n", ["Rain falls,", "softly"]),
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
        assert [*highlight("def f(): pass", language, "monokai")] == [("def f(): pass", Style.null())]


@pytest.mark.parametrize(
    "source", ["[" * 20_000, "*a " * 10_000, "`" * 20_001, "word" * 10_000, "<" * 30_000]
)
def test_what_takes_long_to_parse_is_shown_as_it_was_written(source: str) -> None:
    lines = texts(painter(80).block(MarkdownBlock("prose", source)))
    assert "".join(lines).count(source[0]) == source.count(source[0])


@pytest.mark.parametrize(
    ("code", "is_read"),
    [
        ("x = 1\n" * 100, True),
        ("a " * (LONGEST_LINE // 2), True),
        ("x = 1\n" + "a " * LONGEST_LINE + "\n", False),
        ("-" * (LONGEST_LINE + 1), False),
        ("x = 1\n" * LONGEST_CODE, False),
    ],
)
def test_code_with_a_long_line_is_read_by_no_lexer(code: str, is_read: bool) -> None:
    for language in ("make", "java", "python"):
        pieces = [*highlight(code, language, "monokai")]
        assert "".join(text for text, _ in pieces) == code
        assert (pieces == [(code, Style.null())]) != is_read


RED, BLUE = Style(color="red"), Style(color="blue")
PIECES = [
    *("a", "bc", "word", "longest-of-words", " ", "   ", "\n", "\t"),
    *("é", "e\u0301", "漢字", "👩\u200d👧", "❤\ufe0f"),
]
pieces = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from([RED, BLUE])), max_size=30)


@given(pieces, st.integers(4, 20))
@example([("a ", RED), ("b" * 30, BLUE), (" c", RED)], 7)
@example([(" " * 9, RED), ("x", BLUE)], 4)
def test_what_grows_looks_as_if_it_had_come_at_once(pieces: list[tuple[str, Style]], width: int) -> None:
    whole, grown = painter(width).raw(), painter(width).raw()
    whole.append(pieces)
    for piece in pieces:
        grown.append([piece])
    assert [list(line.simplify()) for line in grown.lines] == [list(line.simplify()) for line in whole.lines]
    for line in whole.lines:
        assert cell_len(line.text) == line.cell_length == GUTTER + width


@given(pieces)
def test_nothing_but_blanks_is_lost(pieces: list[tuple[str, Style]]) -> None:
    lines = painter(12).raw()
    lines.append(pieces)
    assert "".join("".join(texts(lines.lines)).split()) == "".join("".join(t for t, _ in pieces).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("one two three", ["one two", "three"]),
        ("one two  \nthree", ["one two", "three"]),
        ("onetwothree", ["onetwoth", "ree"]),
        ("    x\n\ty\na\tz", ["    x", "    y", "a   z"]),
        ("\n\nx", ["", "", "x"]),
        ("x\n\n", ["x", ""]),
        ("漢字漢字漢", ["漢字漢字", "漢"]),
    ],
)
def test_lines(text: str, expected: list[str]) -> None:
    lines = painter(8).raw()
    lines.append([(text, RED)])
    assert texts(lines.lines) == expected


def test_pieces_keep_their_styles_over_a_border() -> None:
    lines = painter(8).raw()
    lines.append([("one ", RED), ("twothree four", BLUE)])
    shown = [[s for s in line if s.text.strip()] for line in lines.lines]
    assert [[(s.text, s.style and s.style.color) for s in line] for line in shown] == [
        [("one ", RED.color)],
        [("twothree", BLUE.color)],
        [("four", BLUE.color)],
    ]


def test_lines_that_have_ended_are_not_painted_again() -> None:
    painted = list[str]()

    def paint(text: Text) -> list[Strip]:
        painted.append(text.plain)
        return []

    lines = GrowingText(paint)
    for piece in ("a", "b\nc", "d\n"):
        lines.append([(piece, RED)])
    assert painted == ["a", "ab", "c", "cd"]
    for _ in range(4 * LONGEST_GROWING // 5):
        lines.append([("word ", RED)])
    assert max(map(len, painted)) <= LONGEST_GROWING + 5
