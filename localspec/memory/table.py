"""A table of n-grams in a mapped file, shared by every process that has it open.

Its keys are hashes of the last n tokens. Insertion takes no lock. An entry is two words, and the first is the
hash XORed with the token of the second: a torn or overwritten entry matches nothing (Hyatt and Mann, "A
lock-less transposition-table implementation for parallel search", 2002). A lost or wrong entry costs a
rejected draft at most. The first page holds the header, which never changes, and the state, which does.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from localspec.errors import MemoryCorrupt, NewerFormat
from localspec.home import plain
from localspec.memory.ngrams import WORD, Words

MAGIC = b"LSNGRAM\0"
VERSION = 3
HEADER_BYTES = 4096
ENTRY_BYTES = 16
MIN_BITS, MAX_BITS = 4, 26

FIELDS = struct.Struct("<8sIIH")
"""magic, version, log2 of the number of entries, bytes of the workspace's path"""
STATE_AT = 3072
"""offset of the state, which changes in place; before it: the fields and the path"""
NUMBER = struct.Struct("<Q")
"""a field of the state: the epoch, chosen at random, anew when a source is forgotten, or :data:`FORGOTTEN`;
then the number of entries inserted or seen again"""
INSERTED_AT = STATE_AT + NUMBER.size
PATH_AT = FIELDS.size
PATH_ROOM = STATE_AT - PATH_AT
FORGOTTEN = 0
"""the epoch of a table that processes must no longer use"""

BUCKET = 4
"""entries that share a cache line"""
FRESH_SCORE = 3
"""survives one rejection"""
MAX_SCORE = 255
REJECTED = 2

TOKEN = 0xFFFFFF
LOW = 0xFFFFFFFF
"""of the second word: token (24 bits) and order (8); above them source tag (16), score (8), stamp (8)"""
ORDER_AT, TAG_AT, SCORE_AT, STAMP_AT = 24, 32, 48, 56
BYTE, TAG = 0xFF, 0xFFFF

_bucket = struct.Struct(f"<{2 * BUCKET}Q").unpack_from
_entry = struct.Struct("<QQ").pack_into
_value = NUMBER.unpack_from
_tag_score_stamp = struct.Struct("<HBB").pack_into
_score_stamp = struct.Struct("<BB").pack_into
VALUE_AT, TAIL_AT, SCORE_BYTE_AT = 8, 12, 14


def choose_epoch() -> int:
    return 1 + secrets.randbelow(WORD)


class TableHeader(NamedTuple):
    """The fields that never change in one file."""

    bits: int
    """log2 of the number of entries"""
    workspace: str
    """a path, cut to :data:`PATH_ROOM` bytes; empty: the user-wide table"""

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + (ENTRY_BYTES << self.bits)

    def pack(self, epoch: int) -> bytes:
        """The whole page of a table without entries."""
        path = plain(self.workspace).encode()[:PATH_ROOM]
        page = FIELDS.pack(MAGIC, VERSION, self.bits, len(path)) + path
        return (page.ljust(STATE_AT, b"\0") + NUMBER.pack(epoch)).ljust(HEADER_BYTES, b"\0")


def read_header(page: bytes, file_bytes: int) -> TableHeader:
    """Check a file's first page against the file's size. Raises :class:`MemoryCorrupt` for the first defect,
    or its subclass :class:`NewerFormat`."""
    if len(page) < HEADER_BYTES:
        raise MemoryCorrupt("the file is too short")
    magic, version, bits, length = FIELDS.unpack_from(page)
    if magic != MAGIC:
        raise MemoryCorrupt("the file is not an n-gram table")
    if version != VERSION:
        kind = NewerFormat if version > VERSION else MemoryCorrupt
        raise kind(f"the file's format is version {version}, not {VERSION}")
    workspace = plain(page[PATH_AT : PATH_AT + length].decode("utf-8", "surrogateescape"))
    header = TableHeader(bits, workspace)
    if not MIN_BITS <= bits <= MAX_BITS or header.file_bytes != file_bytes:
        raise MemoryCorrupt("the file's size is not that of its header")
    return header


class Recall(NamedTuple):
    """The token that a table drafts for a context."""

    token: int
    order: int
    """number of tokens of the context that matched"""
    score: int
    """1 … 255"""
    slot: int
    """for :meth:`NgramTable.credit`"""


class NgramTable:
    """A hash table in buckets of four entries; the upper bits of a hash select the bucket."""

    def __init__(self, path: Path, mapped: mmap.mmap, header: TableHeader) -> None:
        self.path, self.header = path, header
        self._map = mapped
        self._shift = 64 - header.bits + BUCKET.bit_length() - 1

    @classmethod
    def open(cls, path: Path) -> NgramTable:
        """Map a file. Raises :class:`MemoryCorrupt` if it is not a table, and :class:`OSError`."""
        with path.open("r+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            header = read_header(file.read(HEADER_BYTES), size)
            return cls(path, mmap.mmap(file.fileno(), size), header)

    @property
    def epoch(self) -> int:
        found: int = _value(self._map, STATE_AT)[0]
        return found

    @property
    def is_forgotten(self) -> bool:
        return self.epoch == FORGOTTEN

    def find(self, hashes: Sequence[int]) -> Recall | None:
        """The best continuation of the longest known n-gram; None if none is known. ``hashes`` are those of
        :func:`hashes_of`, longest order first; the entries hold their orders. The token is below 2**24 even
        in a damaged file; the caller checks that the vocabulary has it."""
        shift, mapped = self._shift, self._map
        for key in hashes:
            offset = HEADER_BYTES + (key >> shift << 6)
            k0, v0, k1, v1, k2, v2, k3, v3 = _bucket(mapped, offset)
            # XORed with the low half of the value: only an entry that was written as a whole matches.
            lanes = [0] if k0 ^ v0 & LOW == key else []
            if k1 ^ v1 & LOW == key:
                lanes.append(1)
            if k2 ^ v2 & LOW == key:
                lanes.append(2)
            if k3 ^ v3 & LOW == key:
                lanes.append(3)
            if lanes and (found := self._best((v0, v1, v2, v3), lanes, offset)):
                return found
        return None

    def _best(self, words: Sequence[int], lanes: list[int], offset: int) -> Recall | None:
        lane = lanes[0] if len(lanes) == 1 else max(lanes, key=lambda lane: self._strength(words[lane]))
        word = words[lane]
        score = word >> SCORE_AT & BYTE
        if not score:
            return None
        slot = (offset - HEADER_BYTES) // ENTRY_BYTES + lane
        return Recall(word & TOKEN, word >> ORDER_AT & BYTE, score, slot)

    def _strength(self, word: int) -> int:
        """The rank of a continuation among those of one n-gram: by score, then by age."""
        return (word >> SCORE_AT & BYTE) << 8 | ((word >> STAMP_AT) - self._clock - 1) & BYTE

    def credit(self, slot: int, token: int, *, accepted: bool) -> None:
        """Raise or lower the score of the entry that offered ``token``, if ``slot`` still holds it."""
        offset = HEADER_BYTES + slot * ENTRY_BYTES
        word = _value(self._map, offset + VALUE_AT)[0]
        if word & TOKEN == token:
            score = word >> SCORE_AT & BYTE
            score = min(score + 1, MAX_SCORE) if accepted else max(score - REJECTED, 0)
            _score_stamp(self._map, offset + SCORE_BYTE_AT, score, self._clock & BYTE)

    def insert(self, hashes: Words, tokens: Words, order: int, tag: int) -> None:
        """Insert n-grams of one order with the tokens that followed them, learnt from the source ``tag``. A
        new entry replaces the weakest of its bucket if none is free. The score of an entry that is in the
        table is aged; it grows by 1 if another source taught it last, and is at least 1. ``tag`` becomes its
        source in both cases."""
        lows = tokens | np.uint64(order << ORDER_AT)
        clock, shift, mapped = self._clock, self._shift, self._map
        fresh = tag << TAG_AT | FRESH_SCORE << SCORE_AT | (clock & BYTE) << STAMP_AT
        for check, bucket, low in zip(
            (hashes ^ lows).tolist(), (hashes >> np.uint64(shift)).tolist(), lows.tolist(), strict=True
        ):
            offset = HEADER_BYTES + (bucket << 6)
            words = _bucket(mapped, offset)
            if check in words and (at := words.index(check)) % 2 == 0 and words[at + 1] & LOW == low:
                known = _age_score(words[at + 1], clock) + (words[at + 1] >> TAG_AT & TAG != tag)
                known = min(max(known, 1), MAX_SCORE)
                _tag_score_stamp(mapped, offset + 8 * at + TAIL_AT, tag, known, clock & BYTE)
            else:
                _entry(mapped, offset + ENTRY_BYTES * _weakest(words, clock), check, low | fresh)

    def count(self, entries: int) -> None:
        """Add to the number of entries inserted; concurrent counts of two processes may be lost."""
        NUMBER.pack_into(self._map, INSERTED_AT, _value(self._map, INSERTED_AT)[0] + entries & WORD)

    def tags(self) -> Words:
        """The sources of all entries with a score above 0."""
        values = self._words()[1::2]
        used = (values >> np.uint64(SCORE_AT) & np.uint64(BYTE)) > 0
        return values[used] >> np.uint64(TAG_AT) & np.uint64(TAG)

    def renew(self) -> None:
        """Have no process insert what waits to be learnt."""
        NUMBER.pack_into(self._map, STATE_AT, choose_epoch())

    def forget_all(self) -> None:
        """Make every process leave the table, then overwrite it."""
        NUMBER.pack_into(self._map, STATE_AT, FORGOTTEN)
        NUMBER.pack_into(self._map, INSERTED_AT, 0)
        self._words()[:] = 0
        self._map.flush()

    def forget(self, tag: int) -> int:
        """Overwrite the entries of one source; returns their number."""
        words = self._words().reshape(-1, 2)
        mine = (words[:, 1] >> np.uint64(TAG_AT) & np.uint64(TAG)) == tag
        mine &= words[:, 1] > np.uint64(0)
        words[mine] = 0
        return int(np.count_nonzero(mine))

    def flush(self) -> None:
        self._map.flush()

    def close(self) -> None:
        """Unmap; the table cannot be used any more."""
        with contextlib.suppress(BufferError):
            self._map.close()

    @property
    def _clock(self) -> int:
        """The times that half the table's size was inserted: the unit of age."""
        inserted: int = _value(self._map, INSERTED_AT)[0]
        return inserted >> self.header.bits - 1

    def _words(self) -> Words:
        return np.frombuffer(self._map, "<u8", offset=HEADER_BYTES)


def _age_score(word: int, clock: int) -> int:
    """An entry's score, halved for every step of the clock since its last use."""
    score: int = (word >> SCORE_AT & BYTE) >> (clock - (word >> STAMP_AT) & BYTE)
    return score


def _weakest(words: Sequence[int], clock: int) -> int:
    """The lane to write to: a free one, else that of the lowest score after ageing, the oldest of these."""
    weakest, lowest = 0, (MAX_SCORE + 1, 0)
    for lane in range(BUCKET):
        word = words[2 * lane + 1]
        if not word:
            return lane
        strength = _age_score(word, clock), -(clock - (word >> STAMP_AT) & BYTE)
        if strength < lowest:
            weakest, lowest = lane, strength
    return weakest
