"""Lines and columns, as editors count them."""

from __future__ import annotations

import pytest

from localspec.lsp.documents import Encoding, column, lines_of, units

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")

LINES = {
    "": [""],
    "a": ["a"],
    "a\n": ["a\n", ""],
    "a\nb": ["a\n", "b"],
    "a\r\nb\rc\n\r\r\nd\r": ["a\r\n", "b\r", "c\n", "\r", "\r\n", "d\r", ""],
    # What Python would take for a line's end, and no editor does.
    "a\fb\vc\u2028d\x85e\x1cf": ["a\fb\vc\u2028d\x85e\x1cf"],
}

GOLDEN = [
    # text up to the place, how long it is in UTF-8, UTF-16, UTF-32
    ("", (0, 0, 0)),
    ("x = 1", (5, 5, 5)),
    ("\tx", (2, 2, 2)),
    ("é", (2, 1, 1)),
    ("e\N{COMBINING ACUTE ACCENT}", (3, 2, 2)),
    ("漢字", (6, 2, 2)),
    ("😋", (4, 2, 1)),
    ("x='😋👩\N{ZERO WIDTH JOINER}🔬", (18, 10, 7)),
    ("\ud83d", (3, 1, 1)),
]
"""half of a surrogate pair comes of editors that cut in the middle"""


@pytest.mark.parametrize("text", LINES)
def test_lines(text: str) -> None:
    assert lines_of(text) == LINES[text]


@pytest.mark.parametrize("after", ["", "!", "é😋\r\n"])
@pytest.mark.parametrize(("text", "lengths"), GOLDEN)
def test_columns(text: str, lengths: tuple[int, ...], after: str) -> None:
    for encoding, length in zip(ENCODINGS, lengths, strict=True):
        assert units(text, encoding) == length
        assert column(text + after, length, encoding) == len(text)


def test_a_place_within_a_character_is_before_it() -> None:
    assert [column("a😋b", at, "utf-16") for at in range(5)] == [0, 1, 1, 2, 3]
    assert [column("a😋b", at, "utf-8") for at in range(7)] == [0, 1, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("line", ["ab", "ab\r\n", "é", "é\r", "😋\n"])
def test_a_place_behind_a_line_is_its_end(line: str, encoding: Encoding) -> None:
    assert column(line, 1000, encoding) == len(line.rstrip("\r\n"))
