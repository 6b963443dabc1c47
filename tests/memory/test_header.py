"""The first page of a table: read as it was written, and every damage named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import MemoryCorrupt
from localspec.memory.header import (
    ENTRY_BYTES,
    HEADER_BYTES,
    INSERTED_AT,
    MAX_BITS,
    MIN_BITS,
    NUMBER,
    PATH_AT,
    PATH_ROOM,
    STATE_AT,
    VERSION,
    TableHeader,
    read_header,
)

HEADER = TableHeader(6, "/home/me/Straße \\xff")
EPOCH = 2**64 - 1


def damaged(at: int, value: bytes) -> bytes:
    page = bytearray(HEADER.pack(EPOCH))
    page[at : at + len(value)] = value
    return bytes(page)


def test_a_page_is_read_as_it_was_written() -> None:
    page = HEADER.pack(EPOCH)
    assert len(page) == HEADER_BYTES
    assert read_header(page, HEADER.file_bytes) == HEADER
    assert NUMBER.unpack_from(page, STATE_AT) == (EPOCH,)
    # Processes that share a file write the counter without the epoch.
    assert NUMBER.unpack_from(page, INSERTED_AT) == (0,)


def test_what_changes_in_place_is_no_damage() -> None:
    page = damaged(STATE_AT, b"\xff" * (HEADER_BYTES - STATE_AT))
    assert read_header(page, HEADER.file_bytes) == HEADER


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (b"", "too short"),
        (HEADER.pack(EPOCH)[:-1], "too short"),
        (bytes(HEADER_BYTES), "not an n-gram table"),
        (damaged(0, b"GGUF"), "not an n-gram table"),
        (damaged(8, bytes([VERSION + 1])), f"version {VERSION + 1}, not {VERSION}"),
        (damaged(12, b"\x07"), "size is not that of its header"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(page: bytes, sentence: str) -> None:
    with pytest.raises(MemoryCorrupt, match=sentence):
        read_header(page, HEADER.file_bytes)


@pytest.mark.parametrize("more", [-1, 1, ENTRY_BYTES])
def test_a_file_of_another_size_is_no_table(more: int) -> None:
    """Mapped, what is missing would end the process."""
    with pytest.raises(MemoryCorrupt, match="size"):
        read_header(HEADER.pack(EPOCH), HEADER.file_bytes + more)


@pytest.mark.parametrize("bits", [0, MIN_BITS - 1, MAX_BITS + 1, 40])
def test_a_size_that_no_table_has(bits: int) -> None:
    """Though the file agrees with it."""
    header = HEADER._replace(bits=bits)
    with pytest.raises(MemoryCorrupt, match="size"):
        read_header(header.pack(EPOCH), header.file_bytes)


@pytest.mark.parametrize("length", [0, PATH_ROOM - 1, PATH_ROOM, PATH_ROOM + 1, 3 * PATH_ROOM])
def test_a_path_is_cut_to_its_room(length: int) -> None:
    header = HEADER._replace(workspace="x" * length)
    page = header.pack(EPOCH)
    assert len(page) == HEADER_BYTES
    assert read_header(page, header.file_bytes).workspace == "x" * min(length, PATH_ROOM)
    assert NUMBER.unpack_from(page, STATE_AT) == (EPOCH,)


def test_a_path_that_is_cut_inside_a_character_is_still_a_path() -> None:
    header = HEADER._replace(workspace="x" + "ß" * PATH_ROOM)
    found = read_header(header.pack(EPOCH), header.file_bytes).workspace
    assert found.startswith("xßß") and found.encode()


@given(st.binary(max_size=PATH_AT + 30), st.sampled_from([0, HEADER.file_bytes, 2**33]))
def test_any_page_is_a_header_or_a_typed_error(noise: bytes, size: int) -> None:
    """With a start that passes the first checks, so that the fields are read."""
    page = damaged(12, noise)
    try:
        assert read_header(page, size).file_bytes == size
    except MemoryCorrupt as error:
        assert error.message == "the file's size is not that of its header"
