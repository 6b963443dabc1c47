"""Plain text that grows looks as if it had come at once, and every line is as wide as the screen."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from localspec.tui.painter import GUTTER, LONGEST_LINE, GrowingText
from tests.tui.looks import painter, texts

RED, BLUE = Style(color="red"), Style(color="blue")
PIECES = [
    *("a", "bc", "word", "longest-of-words", " ", "   ", "\n", "\t"),
    *("é", "e\u0301", "漢字", "👩\u200d👧", "❤\ufe0f"),
]
pieces = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from([RED, BLUE])), max_size=30)


def plain(width: int) -> GrowingText:
    return painter(width).raw()


@given(pieces, st.integers(4, 20))
@example([("a ", RED), ("b" * 30, BLUE), (" c", RED)], 7)
@example([(" " * 9, RED), ("x", BLUE)], 4)
def test_what_grows_looks_as_if_it_had_come_at_once(pieces: list[tuple[str, Style]], width: int) -> None:
    whole, grown = plain(width), plain(width)
    whole.append(pieces)
    for piece in pieces:
        grown.append([piece])
    assert [list(line.simplify()) for line in grown.lines] == [list(line.simplify()) for line in whole.lines]
    for line in whole.lines:
        assert cell_len(line.text) == line.cell_length == GUTTER + width


@given(pieces)
def test_nothing_but_blanks_is_lost(pieces: list[tuple[str, Style]]) -> None:
    lines = plain(12)
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
    lines = plain(8)
    lines.append([(text, RED)])
    assert texts(lines.lines) == expected


def test_pieces_keep_their_styles_over_a_border() -> None:
    lines = plain(8)
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
    for _ in range(4 * LONGEST_LINE // 5):
        lines.append([("word ", RED)])
    assert max(map(len, painted)) <= LONGEST_LINE + 5
