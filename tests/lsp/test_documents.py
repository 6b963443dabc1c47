"""Texts as they are edited, and the parts of them that are sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from localspec.completion.context import CUT, MOST_AFTER, MOST_BEFORE
from localspec.lsp.documents import (
    BLOCK_CHARS,
    BLOCKS,
    Document,
    Encoding,
    Place,
    Ring,
    column,
    lines_of,
    units,
)
from localspec.protocol.requests import File

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
        ("file:///src/environment.py", "/src/environment.py", False),
        ("git:/src/a.py?%7B%7D", "untitled:src/a.py?%7B%7D", True),
        ("output:tasks", "untitled:tasks", True),
    ],
)
def test_paths(uri: str, path: str, private: bool) -> None:
    kept = document("", uri)
    assert (kept.path, kept.is_private) == (path, private)


ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
GOLDEN = [
    # text up to the place, how long it is in UTF-8, UTF-16, UTF-32
    ("", (0, 0, 0)),
    ("\tx", (2, 2, 2)),
    ("é", (2, 1, 1)),
    ("e\N{COMBINING ACUTE ACCENT}", (3, 2, 2)),
    ("漢字", (6, 2, 2)),
    ("😋", (4, 2, 1)),
    ("x='😋👩\N{ZERO WIDTH JOINER}🔬", (18, 10, 7)),
    ("\ud83d", (3, 1, 1)),
]
"""half of a surrogate pair comes of editors that cut in the middle"""


@pytest.mark.parametrize(
    "lines",
    [
        [""],
        ["a"],
        ["a\r\n", "b\r", "c\n", "\r", "\r\n", "d\n", ""],
        ["a\fb\vc\u2028d\x85e\x1cf"],  # Python would end lines there, and no editor does
    ],
)
def test_lines(lines: list[str]) -> None:
    assert lines_of("".join(lines)) == lines


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


def opened(*names: str, **more: str) -> dict[str, Document]:
    texts = {name: "".join(f"{name} {line}\n" for line in range(200)) for name in names} | more
    uris = {f"file:///{name}": text for name, text in texts.items()}
    return {uri: Document(uri, "python", text) for uri, text in uris.items()}


def pieces_of(ring: Ring, documents: dict[str, Document], but: str = "") -> list[str]:
    return [file.text.partition("\n")[0] for file in ring.blocks(documents, but, lambda _: True)]


def test_the_newest_come_first_and_two_of_a_file() -> None:
    ring, documents = Ring(), opened("a", "b")
    for name, line in (("a", 0), ("b", 70), ("a", 130), ("a", 65), ("a", 127)):
        ring.touch(f"file:///{name}", line)
    assert pieces_of(ring, documents) == ["a 64", "a 128", "b 64"]
    assert pieces_of(ring, documents, "file:///a") == ["b 64"]
    ring.forget("file:///b")
    assert pieces_of(ring, documents) == ["a 64", "a 128"]


def test_a_piece_has_64_lines_and_its_files_path() -> None:
    ring, documents = Ring(), opened("a")
    ring.touch("file:///a", 100)
    (file,) = ring.blocks(documents, "", lambda _: True)
    assert file == File("/a", "".join(f"a {line}\n" for line in range(64, 128)))


def test_of_more_than_sixteen_half_goes_at_once() -> None:
    names = [f"{number}" for number in range(40)]
    ring, documents = Ring(), opened(*names)
    oldest = []
    for number, name in enumerate(names):
        ring.touch(f"file:///{name}", 0)
        pieces = pieces_of(ring, documents)
        assert pieces == [f"{name} 0" for name in reversed(names[: number + 1])][: len(pieces)]
        assert min(number + 1, BLOCKS // 2) <= len(pieces) <= BLOCKS
        oldest.append(pieces[-1])
    assert len(set(oldest)) == 4


def test_what_may_not_be_sent_or_is_no_more_is_left_out() -> None:
    ring, documents = Ring(), opened("a", "b", long="x" * 2 * BLOCK_CHARS, blank="\n \n")
    for name in ("a", "b", "c", "long", "blank"):
        ring.touch(f"file:///{name}", 0)
    ring.touch("file:///a", 199)

    def allowed(document: Document) -> bool:
        return document.path != "/b"

    assert [(file.path, len(file.text)) for file in ring.blocks(documents, "", allowed)] == [
        ("/a", len("a 192\n") * 8),
        ("/long", BLOCK_CHARS),
        ("/a", len("a 0\n") * 10 + len("a 10\n") * 54),
    ]
