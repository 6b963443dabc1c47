"""One table: its header, what it finds, how it scores, what it gives up, and that nothing in it can hurt."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import MemoryCorrupt
from localspec.memory.ngrams import hashes_of
from localspec.memory.table import (
    ENTRY_BYTES,
    FRESH_SCORE,
    HEADER_BYTES,
    INSERTED_AT,
    MAX_BITS,
    MAX_SCORE,
    MIN_BITS,
    NUMBER,
    PATH_AT,
    PATH_ROOM,
    STATE_AT,
    VERSION,
    NgramTable,
    TableHeader,
    read_header,
)
from tests.memory.tables import table_in, teach, words

TEXT = [(7 * i * i + 3 * i) % 1000 for i in range(40)]
HEADER = TableHeader(6, "/home/me/Straße \\xff")
EPOCH = 2**64 - 1


@pytest.fixture
def table(tmp_path: Path) -> NgramTable:
    # Wide enough that no bucket of four overflows.
    return table_in(tmp_path, bits=13)


def teach_one(table: NgramTable, value: int, token: int, tag: int = 1, times: int = 1) -> None:
    for _ in range(times):
        table.insert(words([value]), words([token]), 3, tag)


def score_of(table: NgramTable, value: int) -> int:
    found = table.find([value])
    return found.score if found else 0


def test_what_was_taught_is_found_after_opening_again(tmp_path: Path, table: NgramTable) -> None:
    teach(table, TEXT)
    table.close()
    again = table_in(tmp_path, bits=13)
    for end in range(16, len(TEXT)):
        found = again.find(hashes_of(TEXT[:end]))
        assert found is not None and (found.token, found.order) == (TEXT[end], 16)


@pytest.mark.parametrize(("kept", "order"), [(16, 16), (15, 8), (8, 8), (7, 5), (5, 5), (4, 3), (3, 3)])
def test_the_longest_order_that_is_known_answers(table: NgramTable, kept: int, order: int) -> None:
    teach(table, TEXT)
    context = [5001] * 20 + TEXT[30 - kept : 30]
    found = table.find(hashes_of(context))
    assert found is not None and (found.token, found.order) == (TEXT[30], order)


def test_what_was_not_taught_is_not_found(table: NgramTable) -> None:
    teach(table, TEXT)
    rng = random.Random(1)
    for _ in range(10_000):
        assert table.find(hashes_of([rng.randrange(1000, 2000) for _ in range(16)])) is None
    assert table.find(()) is None


def test_the_continuation_of_the_highest_score_is_offered_then_the_newest(table: NgramTable) -> None:
    teach_one(table, 99, 10, tag=1)
    teach_one(table, 99, 11, tag=1)
    teach_one(table, 99, 11, tag=2)
    found = table.find([99])
    assert found is not None and (found.token, found.score) == (11, FRESH_SCORE + 1)
    table.credit(found.slot, 11, accepted=False)
    found = table.find([99])
    assert found is not None and (found.token, found.score) == (10, FRESH_SCORE)
    table.count(1 << 12)  # half the size: the clock ticks
    teach_one(table, 99, 12)
    found = table.find([99])
    assert found is not None and found.token == 12


def test_a_source_counts_once_for_each_ngram(table: NgramTable) -> None:
    teach_one(table, 5, 1, tag=1, times=9)
    assert score_of(table, 5) == FRESH_SCORE
    teach_one(table, 5, 1, tag=2, times=9)
    assert score_of(table, 5) == FRESH_SCORE + 1


def test_scores_rise_by_one_fall_by_two_and_stay_in_their_range(table: NgramTable) -> None:
    teach_one(table, 5, 1)
    found = table.find([5])
    assert found is not None
    for _ in range(300):
        table.credit(found.slot, 1, accepted=True)
    assert score_of(table, 5) == MAX_SCORE
    table.credit(found.slot, 1, accepted=False)
    assert score_of(table, 5) == MAX_SCORE - 2
    for _ in range(300):
        table.credit(found.slot, 1, accepted=False)
    assert table.find([5]) is None  # of no use: shorter orders are asked
    teach_one(table, 5, 1)
    assert score_of(table, 5) == 1


def test_a_longer_ngram_of_no_use_gives_way_to_a_shorter_one(table: NgramTable) -> None:
    teach(table, TEXT)
    context = hashes_of(TEXT[:30])
    for order in (16, 8, 5, 3):
        found = table.find(context)
        assert found is not None and found.order == order
        for _ in range(FRESH_SCORE):
            table.credit(found.slot, found.token, accepted=False)
    assert table.find(context) is None


def test_credit_is_for_the_token_that_was_offered(table: NgramTable) -> None:
    teach_one(table, 5, 1)
    found = table.find([5])
    assert found is not None
    table.credit(found.slot, 2, accepted=True)
    assert score_of(table, 5) == FRESH_SCORE


def same_bucket(n: int) -> list[int]:
    """Hashes that share the first bucket."""
    return [(number + 1) * 0x123456789ABC for number in range(n)]


def test_a_full_bucket_gives_up_its_lowest_score(table: NgramTable) -> None:
    one, two, three, four, five = same_bucket(5)
    for value in (one, two, three, four):
        teach_one(table, value, 1, tag=1)
        if value != three:
            teach_one(table, value, 1, tag=2)
    teach_one(table, five, 1)
    assert [score_of(table, value) for value in (one, two, three, four, five)] == [4, 4, 0, 4, 3]


def test_scores_halve_with_every_tick_when_room_is_needed(table: NgramTable) -> None:
    one, two, three, four, five = same_bucket(5)
    teach_one(table, one, 1)
    slot = table.find([one])
    assert slot is not None
    for _ in range(3):
        table.credit(slot.slot, 1, accepted=True)
    table.count(1 << 12)
    table.count(1 << 12)
    for value in (two, three, four, five):
        teach_one(table, value, 1)
    # 6 halved twice is less than 3.
    assert [score_of(table, value) for value in (one, two, three, four, five)] == [0, 3, 3, 3, 3]


def test_an_entry_torn_between_two_writers_matches_nothing(table: NgramTable) -> None:
    one, two = same_bucket(2)
    teach_one(table, one, 1)
    teach_one(table, two, 2)
    # The key of one with the value of the other.
    table._map[HEADER_BYTES : HEADER_BYTES + 8] = table._map[HEADER_BYTES + 16 : HEADER_BYTES + 24]
    assert table.find([one]) is None
    found = table.find([two])
    assert found is not None and found.token == 2


def test_one_source_is_forgotten_and_the_others_are_not(table: NgramTable) -> None:
    teach_one(table, 5, 1, tag=1)
    teach_one(table, 6, 2, tag=2)
    assert table.forget(1) == 1
    assert table.find([5]) is None and table.find([6]) is not None


def test_a_forgotten_table_is_overwritten_and_left(table: NgramTable) -> None:
    teach_one(table, 5, 1)
    table.forget_all()
    assert table.is_forgotten and set(table._map[HEADER_BYTES:]) == {0}


@given(data=st.data(), seed=st.integers(0, 2**32))
def test_whatever_the_entries_hold_find_gives_a_token_or_none(data: st.DataObject, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = table_in(Path(folder), bits=4)
        size = ENTRY_BYTES << 4
        noise = random.Random(seed).randbytes(size)
        bytes_ = data.draw(st.one_of(st.just(noise), st.binary(min_size=size, max_size=size)))
        table._map[HEADER_BYTES:] = bytes_
        for value in [key for key, _ in entries_of(bytes_)] + [0, (1 << 64) - 1]:
            found = table.find([value] * 4)
            if found is not None:
                assert 0 <= found.token < 1 << 24 and 1 <= found.score <= 255
                table.credit(found.slot, found.token, accepted=False)
            teach_one(table, value, 7)
        table.tags()
        table.close()


def entries_of(bytes_: bytes) -> list[tuple[int, int]]:
    found = []
    for at in range(0, len(bytes_), ENTRY_BYTES):
        first, second = (int.from_bytes(bytes_[at + i : at + i + 8], "little") for i in (0, 8))
        found.append((first ^ second & 0xFFFFFFFF, second))
    return found


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
