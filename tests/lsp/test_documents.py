"""Texts as they are edited, and the parts of them that are sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from localspec.completion.context import CUT, MOST_AFTER, MOST_BEFORE
from localspec.lsp.documents import (
    Document,
    Encoding,
    Place,
    lines_of,
    units,
)

TEXTS = st.text(alphabet="ab \n\r\fé漢😋\N{COMBINING ACUTE ACCENT}\u2028", max_size=12)
EDITS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), TEXTS), max_size=8)


def document(text: str, uri: str = "file:///a.py") -> Document:
    return Document(uri, "python", text)


def position(text: str, offset: int, encoding: Encoding) -> types.Position:
    """Return an editor's position for an offset; there is none between CR and LF."""
    lines = lines_of(text[:offset])
    return types.Position(len(lines) - 1, units(lines[-1], encoding))


@given(TEXTS, EDITS, st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_edits_are_those_of_the_editor(
    text: str, edits: list[tuple[int, int, str]], encoding: Encoding
) -> None:
    kept = document(text)
    for start, length, new in edits:
        cuts = [at for at in range(len(text) + 1) if text[at - 1 : at + 1] != "\r\n" or not at]
        first = min(cuts, key=lambda at: abs(at - start))
        last = min((at for at in cuts if at >= first), key=lambda at: abs(at - first - length))
        place = types.Range(position(text, first, encoding), position(text, last, encoding))
        kept.change(types.TextDocumentContentChangePartial(range=place, text=new), encoding)
        text = text[:first] + new + text[last:]
        assert kept.lines == lines_of(text)
        assert 0 <= kept.edited < len(kept.lines)
    assert kept.revision == len(edits)


def test_all_of_a_text_may_be_replaced() -> None:
    kept = document("a\nb\n")
    kept.edited = 2
    kept.change(types.TextDocumentContentChangeWholeDocument("c"), "utf-16")
    assert kept.lines == ["c"] and kept.edited == 0 and kept.revision == 1


def test_a_range_that_is_the_wrong_way_round_is_turned() -> None:
    kept = document("abc")
    place = types.Range(types.Position(0, 2), types.Position(0, 1))
    kept.change(types.TextDocumentContentChangePartial(range=place, text="-"), "utf-16")
    assert kept.lines == ["a-c"]


@pytest.mark.parametrize(
    ("at", "place"), [((0, 99), (0, 1)), ((1, 0), (1, 0)), ((2, 0), (1, 0)), ((2**31 - 1, 2**31 - 1), (1, 0))]
)
def test_a_place_outside_is_at_an_end(at: tuple[int, int], place: tuple[int, int]) -> None:
    assert document("a\r\n").place(types.Position(*at), "utf-16") == place


def test_what_is_sent_begins_at_a_multiple_of_64_lines() -> None:
    kept = document("".join(f"{number}\n" for number in range(1000)))
    for line in (500, 511):
        before = kept.before(Place(line, 1)).splitlines()
        assert before[0] == "256" and before[-1] == f"{line}"[:1]
    after = kept.after(Place(500, 1)).splitlines()
    assert after[0] == "00" and after[-1] == "563"
    assert kept.before(Place(512, 0)).startswith("256\n")


def test_one_huge_line_is_sent_in_part() -> None:
    kept = document("x" * 3_000_000 + "y" * 3_000_000)
    one, other = (kept.before(Place(0, 3_000_000 + typed)) for typed in (1, 2))
    assert MOST_BEFORE - CUT <= len(one) <= MOST_BEFORE and other == one + "y"
    assert kept.after(Place(0, 3_000_000)) == "y" * MOST_AFTER


@pytest.mark.parametrize(
    ("uri", "path", "private"),
    [
        ("file:///src/a%20b.py", "/src/a b.py", False),
        ("untitled:Untitled-1", "untitled:Untitled-1", False),
        ("file://", "untitled:", False),
        ("file:///src/.env", "/src/.env", True),
        ("file:///src/.env.local", "/src/.env.local", True),
        ("file:///src/.ENV", "/src/.ENV", True),
        ("file:///home/id_rsa", "/home/id_rsa", True),
        ("file:///src/Server.PEM", "/src/Server.PEM", True),
        ("file:///src/environment.py", "/src/environment.py", False),
        ("git:/src/a.py?%7B%7D", "untitled:src/a.py?%7B%7D", True),
        ("output:tasks", "untitled:tasks", True),
    ],
)
def test_paths(uri: str, path: str, private: bool) -> None:
    kept = document("", uri)
    assert (kept.path, kept.is_private) == (path, private)
