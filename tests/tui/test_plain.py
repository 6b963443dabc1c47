"""Plain text that grows looks as if it had come at once, and every line is as wide as the screen."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from localspec.tui.plain import Plain, breaks

RED, BLUE = Style(color="red"), Style(color="blue")
PIECES = [
    *("a", "bc", "word", "longest-of-words", " ", "   ", "\n", "\t"),
    *("é", "e\u0301", "漢字", "👩\u200d👧", "❤\ufe0f"),
]
pieces = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from([RED, BLUE])), max_size=30)


def plain(width: int, margin: int = 0) -> Plain:
    return Plain(Segment("> "), width, Style.null(), margin=margin)


@given(pieces, st.integers(4, 20), st.integers(0, 1))
@example([("a ", RED), ("b" * 30, BLUE), (" c", RED)], 7, 0)
@example([(" " * 9, RED), ("x", BLUE)], 4, 0)
def test_what_grows_looks_as_if_it_had_come_at_once(
    pieces: list[tuple[str, Style]], width: int, margin: int
) -> None:
    whole, grown = plain(width, margin), plain(width, margin)
    whole.append(pieces)
    for piece in pieces:
        grown.append([piece])
    assert [list(line.simplify()) for line in grown.lines] == [list(line.simplify()) for line in whole.lines]
    for line in whole.lines:
        assert cell_len(line.text) == line.cell_length == 2 + width


@given(pieces)
def test_nothing_but_blanks_is_lost(pieces: list[tuple[str, Style]]) -> None:
    lines = plain(12)
    lines.append(pieces)
    shown = "".join(line.text[2:] for line in lines.lines)
    assert "".join(shown.split()) == "".join("".join(text for text, _ in pieces).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("one two three", ["one two", "three"]),
        ("one two  \nthree", ["one two", "three"]),
        ("onetwothree", ["onetwoth", "ree"]),
        ("a onetwothree b", ["a", "onetwoth", "ree b"]),
        ("    x\n\ty\na\tz", ["    x", "    y", "a   z"]),
        ("\n\nx", ["", "", "x"]),
        ("x\n\n", ["x", ""]),
        ("漢字漢字漢", ["漢字漢字", "漢"]),
    ],
)
def test_lines(text: str, expected: list[str]) -> None:
    lines = plain(8)
    lines.append([(text, RED)])
    assert [line.text[2:].rstrip() for line in lines.lines] == expected


def test_pieces_keep_their_styles_over_a_border() -> None:
    lines = plain(8)
    lines.append([("one ", RED), ("twothree four", BLUE)])
    assert [[segment for segment in line if segment.text.strip()] for line in lines.lines] == [
        [Segment("> "), Segment("one ", RED)],
        [Segment("> "), Segment("twothree", BLUE)],
        [Segment("> "), Segment("four", BLUE)],
    ]


@pytest.mark.slow
def test_a_line_without_an_end_is_not_wrapped_again_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapped = 0

    def counted(line: str, width: int) -> list[int]:
        nonlocal wrapped
        wrapped += len(line)
        return breaks(line, width)

    monkeypatch.setattr("localspec.tui.plain.breaks", counted)
    lines = plain(80)
    for _ in range(20_000):
        lines.append([("word ", RED)])
    assert len(lines.lines) == 1250 and wrapped < 50 * 100_000
