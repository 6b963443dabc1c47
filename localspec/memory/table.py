"""Tables of n-grams in mapped files, each shared by every process that has it open, and their folder.

The keys of a table are hashes of the last n tokens, for one context or for a whole text at once. Insertion
takes no lock. An entry is two words, and the first is the key XORed with the token of the second: a torn or
overwritten entry matches nothing (Hyatt and Mann, "A lock-less transposition-table implementation for
parallel search", 2002). A lost or wrong entry costs a rejected draft at most.

The files of one vocabulary's tables are made and removed so that a kill at any time is safe. A table is
``<name>.ngm``, of one size from the beginning: when it is full, ageing makes room. A file gets its name only
when it is complete, and is never truncated. Names change under the lock of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import re
import secrets
import stat
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from localspec.errors import FULL, DiskFull, InvalidOptions, MemoryCorrupt, NewerFormat, StorageError
from localspec.home import plain, private_dir
from localspec.memory.sources import Forgotten, Sources, tag_of
from localspec.wording import size

ORDERS = (16, 8, 5, 3)
"""the n of the n-grams, longest first: the order in which they are looked up"""
MULTIPLIER = 6364136223846793005
"""Knuth's multiplier (MMIX) of the rolling hash"""
WORD = (1 << 64) - 1
INVERSE = pow(MULTIPLIER, -1, 1 << 64)

Words = NDArray[np.uint64]


def hashes_of(context: Sequence[int], orders: Sequence[int] = ORDERS) -> tuple[int, ...]:
    """The hashes of the last n tokens for every order, longest first.

    One pass from the newest token backwards, so that order n extends order n - 1. A context too short
    for the longest orders gives the hashes of the others: the result always ends with the shortest.
    """
    newest_first = context[: -orders[0] - 1 : -1]
    found: list[int] = []
    value = done = 0
    for n in reversed(orders):
        if n > len(newest_first):
            break
        for token in newest_first[done:n]:
            value = (value * MULTIPLIER + token + 1) & WORD
        found.append(value)
        done = n
    return tuple(reversed(found))


@cache
def power(n: int) -> int:
    """MULTIPLIER to the n."""
    return pow(MULTIPLIER, n, 1 << 64)


def rolled(value: int, oldest: int, newest: int, n: int) -> int:
    """The hash of n tokens, one token further: ``oldest`` left them, ``newest`` came."""
    return ((value - oldest - 1) * INVERSE + (newest + 1) * power(n - 1)) & WORD


def hashes_in(tokens: Words) -> dict[int, Words]:
    """Per order n that fits: the hashes of the n tokens that end at index n - 1, n, … of ``tokens``."""
    values, found = np.zeros_like(tokens), {}
    for back in range(min(ORDERS[0], len(tokens))):
        values[back:] = values[back:] * np.uint64(MULTIPLIER) + tokens[: len(tokens) - back] + np.uint64(1)
        if back + 1 in ORDERS:
            found[back + 1] = values[back:].copy()
    return found


def salt_of(epoch: int) -> int:
    """The odd number that turns hashes into the keys of one epoch.

    Multiplying by it is a bijection of the 64-bit words, mixes into the upper bits, and makes the keys
    of two epochs unrelated. The mixer is splitmix64 (Steele, Lea, Flood 2014).
    """
    value = (epoch + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & WORD
    return (value ^ value >> 31) | 1


MAGIC = b"LSNGRAM\0"
VERSION = 2
HEADER_BYTES = 4096
ENTRY_BYTES = 16
BUCKET = 4
"""entries that share a cache line"""
MIN_BITS, MAX_BITS = 4, 26
BITS = 20
"""log2 of the number of entries of a new table: 16 MiB, which hold 200,000 tokens whole"""

PRELUDE = struct.Struct("<8sII")
"""magic, version, crc of the fields"""
FIELDS = struct.Struct("<II32s64sH")
"""entry size, log2 of the number of entries, name, vocab_fp, bytes of the workspace's path"""
STATE_AT = 3072
"""offset of the state, which changes in place and is outside the crc; before it: the fields and the path"""
STATE = struct.Struct("<QIQQd")
COUNTERS_AT = STATE_AT + 8
COUNTERS = struct.Struct("<IQQd")
"""the part of the state after the epoch"""
PATH_AT = PRELUDE.size + FIELDS.size
PATH_ROOM = STATE_AT - PATH_AT
FORGOTTEN = 0
"""the epoch of a table that processes must no longer use"""

FRESH_SCORE = 3
"""survives one rejection"""
MAX_SCORE = 255
REJECTED = 2

UNUSABLE = (errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO)
"""errors of opening that are caused by the file itself"""
LATEST_S = 1e11
"""far in the future; a later last use is damage"""

TOKEN = 0xFFFFFF
LOW = 0xFFFFFFFF
"""of the second word: token (24 bits) and order (8); above them source tag (16), score (8), stamp (8)"""
ORDER_AT, TAG_AT, SCORE_AT, STAMP_AT = 24, 32, 48, 56
BYTE, TAG = 0xFF, 0xFFFF

_bucket = struct.Struct(f"<{2 * BUCKET}Q").unpack_from
_entry = struct.Struct("<QQ").pack_into
_value = struct.Struct("<Q").unpack_from
_tag_score_stamp = struct.Struct("<HBB").pack_into
_score_stamp = struct.Struct("<BB").pack_into
_epoch, _tick = struct.Struct("<Q"), struct.Struct("<I").unpack_from
VALUE_AT, TAIL_AT, SCORE_BYTE_AT = 8, 12, 14


class State(NamedTuple):
    """The fields that change during a table's life."""

    epoch: int
    """chosen at random, or :data:`FORGOTTEN`"""
    clock: int = 0
    """counts the times that half the table's size was inserted: the unit of age"""
    inserted: int = 0
    """entries inserted or seen again"""
    tokens: int = 0
    """tokens learnt"""
    last_use: float = 0.0
    """seconds since 1970"""


class Header(NamedTuple):
    """The fields that never change in one file."""

    bits: int
    """log2 of the number of entries"""
    name: str
    vocab_fp: str
    workspace: str
    """a path, cut to :data:`PATH_ROOM` bytes; empty: the user-wide table"""

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + (ENTRY_BYTES << self.bits)

    def pack(self, state: State) -> bytes:
        """The whole page."""
        path = plain(self.workspace).encode()[:PATH_ROOM]
        texts = self.name.encode(), self.vocab_fp.encode()
        fields = FIELDS.pack(ENTRY_BYTES, self.bits, *texts, len(path)) + path
        fields = fields.ljust(STATE_AT - PRELUDE.size, b"\0")
        page = PRELUDE.pack(MAGIC, VERSION, zlib.crc32(fields)) + fields + STATE.pack(*state)
        return page.ljust(HEADER_BYTES, b"\0")


class Recall(NamedTuple):
    """The token that a table drafts for a context."""

    token: int
    order: int
    """number of tokens of the context that matched"""
    score: int
    """1 … 255"""
    slot: int
    """for :meth:`NgramTable.credit`"""


class Entries(NamedTuple):
    """The used entries of a table as parallel arrays; ``hashes`` are without salt."""

    hashes: Words
    tokens: Words
    orders: Words
    tags: Words
    scores: Words


class NgramTable:
    """A hash table in buckets of four entries; the upper bits of the key select the bucket."""

    def __init__(self, path: Path, mapped: mmap.mmap, header: Header) -> None:
        self.path, self.header = path, header
        self._map = mapped
        self._shift = 64 - header.bits + BUCKET.bit_length() - 1
        self._known_epoch, self._salt = self.epoch, salt_of(self.epoch)

    @classmethod
    def open(cls, path: Path, *, name: str, vocab_fp: str) -> NgramTable:
        """Map a file. Raises :class:`MemoryCorrupt` if it is not this table."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            is_dangling = error.errno == errno.ENOENT and path.is_symlink()
            if error.errno in UNUSABLE or is_dangling:
                raise MemoryCorrupt(f"the file cannot be opened: {error.strerror}") from None
            raise
        with os.fdopen(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise MemoryCorrupt("the file is not a regular file")
            header = read_header(file.read(HEADER_BYTES), status.st_size)
            if (header.name, header.vocab_fp) != (name, vocab_fp):
                raise MemoryCorrupt("the file belongs to another vocabulary or workspace")
            if status.st_mode & 0o077:
                _make_private(path)
            return cls(path, mmap.mmap(fd, status.st_size), header)

    @property
    def epoch(self) -> int:
        found: int = _epoch.unpack_from(self._map, STATE_AT)[0]
        return found

    @property
    def state(self) -> State:
        found = State._make(STATE.unpack_from(self._map, STATE_AT))
        # No checksum covers it: an invalid time (NaN compares as False) counts as never.
        return found if 0 <= found.last_use < LATEST_S else found._replace(last_use=0.0)

    @property
    def is_forgotten(self) -> bool:
        return self.epoch == FORGOTTEN

    def find(self, hashes: Sequence[int]) -> Recall | None:
        """The best continuation of the longest known n-gram; None if none is known.

        ``hashes`` are those of :func:`hashes_of`, longest order first; the entries hold their orders. The
        token is below 2**24 even in a damaged file; the caller checks that the vocabulary has it.
        """
        salt, shift, mapped = self._current_salt(), self._shift, self._map
        for value in hashes:
            key = value * salt & WORD
            offset = HEADER_BYTES + (key >> shift << 6)
            k0, v0, k1, v1, k2, v2, k3, v3 = _bucket(mapped, offset)
            # The key XORed with the low half of the value: only an entry that was written as a whole matches.
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
        """Insert n-grams of one order with the tokens that followed them, learnt from the source ``tag``.

        A new entry replaces the weakest of its bucket if none is free. The score of an entry that is in the
        table is aged; it grows by 1 if another source taught it last, and is at least 1.
        ``tag`` becomes its source in both cases.
        """
        keys = hashes * np.uint64(self._current_salt())
        lows = tokens | np.uint64(order << ORDER_AT)
        clock, shift, mapped = self._clock, self._shift, self._map
        fresh = tag << TAG_AT | FRESH_SCORE << SCORE_AT | (clock & BYTE) << STAMP_AT
        for check, bucket, low in zip(
            (keys ^ lows).tolist(), (keys >> np.uint64(shift)).tolist(), lows.tolist(), strict=True
        ):
            offset = HEADER_BYTES + (bucket << 6)
            words = _bucket(mapped, offset)
            if check in words and (at := words.index(check)) % 2 == 0 and words[at + 1] & LOW == low:
                known = _aged(words[at + 1], clock) + (words[at + 1] >> TAG_AT & TAG != tag)
                known = min(max(known, 1), MAX_SCORE)
                _tag_score_stamp(mapped, offset + 8 * at + TAIL_AT, tag, known, clock & BYTE)
            else:
                _entry(mapped, offset + ENTRY_BYTES * _weakest(words, clock), check, low | fresh)

    def count(self, tokens: int, entries: int) -> None:
        """Add to the counters of what was learnt; concurrent counts of two processes may be lost."""
        state, step = self.state, 1 << self.header.bits - 1
        inserted = state.inserted + entries
        clock = state.clock + inserted // step - state.inserted // step
        # The epoch is not written: another process may be setting it.
        learnt = state.tokens + tokens & WORD
        COUNTERS.pack_into(self._map, COUNTERS_AT, clock & LOW, inserted & WORD, learnt, time.time())

    def entries(self) -> Entries:
        """All entries with a score above 0."""
        words = self._words().reshape(-1, 2).copy()
        values, hashes = words[:, 1], self._keys(words) * np.uint64(pow(self._current_salt(), -1, WORD + 1))
        used = (values >> np.uint64(SCORE_AT) & np.uint64(BYTE)) > 0
        fields = ((0, TOKEN), (ORDER_AT, BYTE), (TAG_AT, TAG), (SCORE_AT, BYTE))
        parts = [values[used] >> np.uint64(at) & np.uint64(mask) for at, mask in fields]
        return Entries(hashes[used], *parts)

    def forget_all(self) -> None:
        """Make every entry unmatchable and every process leave the table at once, then overwrite it."""
        _epoch.pack_into(self._map, STATE_AT, FORGOTTEN)
        COUNTERS.pack_into(self._map, COUNTERS_AT, 0, 0, 0, time.time())
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

    def _current_salt(self) -> int:
        epoch = _epoch.unpack_from(self._map, STATE_AT)[0]
        if epoch != self._known_epoch:
            self._known_epoch, self._salt = epoch, salt_of(epoch)
        return self._salt

    @property
    def _clock(self) -> int:
        found: int = _tick(self._map, COUNTERS_AT)[0]
        return found

    def _words(self) -> Words:
        return np.frombuffer(self._map, "<u8", offset=HEADER_BYTES)

    @staticmethod
    def _keys(words: Words) -> Words:
        keys: Words = words[..., 0] ^ words[..., 1] & np.uint64(LOW)
        return keys


def read_header(page: bytes, file_bytes: int) -> Header:
    """Check a file's first page against itself and the file's size.

    Raises :class:`MemoryCorrupt` for the first defect, or its subclass :class:`NewerFormat`.
    """
    if len(page) < HEADER_BYTES:
        raise MemoryCorrupt("the file is too short")
    magic, version, crc = PRELUDE.unpack_from(page)
    if magic != MAGIC:
        raise MemoryCorrupt("the file is not an n-gram table")
    if zlib.crc32(page[PRELUDE.size : STATE_AT]) != crc:
        raise MemoryCorrupt("the file's header is damaged")
    if version != VERSION:
        kind = NewerFormat if version > VERSION else MemoryCorrupt
        raise kind(f"the file's format is version {version}, not {VERSION}")
    entry, bits, name, vocab_fp, length = FIELDS.unpack_from(page, PRELUDE.size)
    workspace = plain(page[PATH_AT : PATH_AT + length].decode("utf-8", "surrogateescape"))
    header = Header(bits, _text(name), _text(vocab_fp), workspace)
    if entry != ENTRY_BYTES or not MIN_BITS <= bits <= MAX_BITS or header.file_bytes != file_bytes:
        raise MemoryCorrupt("the file's size is not that of its header")
    return header


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "replace")


def _make_private(path: Path) -> None:
    try:
        path.chmod(0o600)
    except PermissionError as error:
        raise MemoryCorrupt(
            f"other users can read it, and its mode cannot be changed: {error.strerror}"
        ) from None


def _aged(word: int, clock: int) -> int:
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
        strength = _aged(word, clock), -(clock - (word >> STAMP_AT) & BYTE)
        if strength < lowest:
            weakest, lowest = lane, strength
    return weakest


LOCK_S = 5.0
LONGEST_PATH = 4096
USER = "user"
"""the name of the user-wide table"""
FILE = re.compile(rf"\.?(?P<name>{USER}|w-[0-9a-f]{{24}})\..+")
ASIDE = ".ngm.quarantine-"


def name_of(workspace: str | None) -> str:
    """The name of a workspace's table; None: the user-wide table. Raises :class:`InvalidOptions`."""
    if workspace is None:
        return USER
    return f"w-{hashlib.sha256(_real(workspace).encode()).hexdigest()[:24]}"


def _real(workspace: str) -> str:
    try:
        if 0 < len(workspace) <= LONGEST_PATH:
            return plain(os.path.realpath(workspace))
    except ValueError:  # NUL, or a surrogate that stands for no byte
        pass
    raise InvalidOptions(
        f"{workspace[:80]!r} cannot be a workspace: it is empty, too long or not a path",
        f"Name a directory in at most {LONGEST_PATH} characters.",
    )


class TableFiles:
    """The tables in ``folder``, all of the vocabulary ``vocab_fp``.

    ``notice`` is called with messages for the user. ``bits`` is log2 of a new table's number of entries.
    """

    def __init__(self, folder: Path, notice: Callable[[str], None], *, bits: int = BITS) -> None:
        self.folder, self.vocab_fp = folder, folder.name
        self.forgotten = Forgotten(folder / "forgotten")
        self._notice, self._bits = notice, bits

    def names(self) -> list[str]:
        """The names of all tables, also of those that were set aside, or left nothing but the list of their
        sources."""
        return sorted({name for name, _ in self._files()})

    def set_aside(self, name: str) -> list[Path]:
        """The quarantined files of this name."""
        return sorted(path for owner, path in self._files() if owner == name and ASIDE in path.name)

    def sources(self, name: str) -> Sources:
        return Sources(self.folder / f"{name}.sources")

    def open(self, name: str) -> NgramTable | None:
        """The table of this name; None if there is none, it was forgotten, or its file is not sound.

        Raises :class:`OSError` for errors that are not the file's.
        """
        with contextlib.suppress(MemoryCorrupt, FileNotFoundError, NotADirectoryError):
            table = self._map(name)
            if not table.is_forgotten:
                return table
            table.close()
        return None

    def open_or_create(self, name: str, workspace: str | None) -> NgramTable:
        """As :meth:`open`, but create a missing table, empty. A file that is not a table is set aside, and
        leftovers of killed processes are removed.

        Raises :class:`StorageError`, of which :class:`DiskFull` and :class:`NewerFormat` are subclasses.
        """
        with self.lock():
            return self._settle(name) or self._create(name, workspace)

    def forget(self, name: str) -> None:
        """Make a table and all files beside it unreadable, then remove them."""
        with self.lock():
            with contextlib.suppress(MemoryCorrupt, OSError):
                table = self._map(name)
                table.forget_all()
                table.close()
            for owner, path in self._files():
                if owner == name:
                    _unlink(path)

    def forget_source(self, name: str, source: str) -> int:
        """Overwrite what a table learnt from one source; returns the number of entries.

        Texts of it that wait to be learnt, in any process, are dropped.
        """
        with self.lock():
            # Stamped first: a process that inserts and then sees no stamp inserted before the erasure.
            self.forgotten.add(tag_of(source))
            return self._erase(name, source)

    def erase(self, name: str, source: str) -> int:
        """As :meth:`forget_source`, for a source that was forgotten before; later texts may be learnt."""
        with self.lock():
            return self._erase(name, source)

    def note(self, name: str, source: str, *, since: float) -> None:
        """Store the name of a source, unless it was forgotten after ``since``."""
        with self.lock():
            if not self.forgotten.is_since(tag_of(source), since):
                self.sources(name).add(source)

    def _erase(self, name: str, source: str) -> int:
        """Erase the entries, then the name by which they are found; needs the lock."""
        sources, tag = self.sources(name), tag_of(source)
        # Entries of another source may have the same tag. Those without a name are of a killed process.
        is_anothers = source not in sources and any(tag_of(other) == tag for other in sources.names())
        table = None if is_anothers else self._settle(name)
        if table is None:
            return 0
        forgotten = table.forget(tag)
        table.close()
        sources.remove(source)
        return forgotten

    @contextlib.contextmanager
    def lock(self, timeout: float = LOCK_S) -> Iterator[None]:
        """Hold the lock under which processes change names in this folder, which is created unless its data
        directory was deleted.

        Raises :class:`StorageError`.
        """
        data = self.folder.parent.parent
        if not data.is_dir():
            raise StorageError(
                f"the data directory {data} was deleted: its n-gram memory cannot be changed",
                "If it was moved, set LOCALSPEC_HOME accordingly and run `localspec daemon restart`.",
            )
        private_dir(self.folder.parent, parents=False)
        private_dir(self.folder, parents=False)
        try:
            lock = FileLock(self.folder / "lock", mode=0o600)
            lock.acquire(timeout)
        except Timeout:
            raise StorageError(
                f"the n-gram memory in {self.folder} is locked by another process", "Try again in a moment."
            ) from None
        except OSError as error:
            raise StorageError(
                f"the n-gram memory in {self.folder} cannot be locked: {error.strerror}",
                "Check that this directory and the file `lock` in it are writable.",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _settle(self, name: str) -> NgramTable | None:
        """The table of this name, if it is sound; removes what killed processes left, and needs the lock.

        Raises :class:`NewerFormat`.
        """
        path = self._path(name)
        # Also tables of an older format, which had a number in their names.
        for pattern in (f"{name}.tmp", f"{name}.*.ngm", f".{name}.sources.*", ".forgotten.*"):
            for leftover in self.folder.glob(pattern):
                _unlink(leftover)
        try:
            table = self._map(name)
        except FileNotFoundError:
            return None
        except NewerFormat as error:
            raise NewerFormat(f"{path} is not used as n-gram memory: {error.message}") from None
        except MemoryCorrupt as error:
            self._quarantine(path, error)
            return None
        if not table.is_forgotten:
            return table
        table.close()
        _unlink(path)  # the process that forgot it was killed first
        return None

    def _create(self, name: str, workspace: str | None) -> NgramTable:
        """Write a complete, empty file under its name, or none. Raises :class:`DiskFull`."""
        header = Header(self._bits, name, self.vocab_fp, "" if workspace is None else _real(workspace))
        path = self._path(name)
        scratch = path.with_suffix(".tmp")
        try:
            fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as file:
                # All room is taken now: a page without room on the disk would raise SIGBUS later.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, header.file_bytes)
                else:
                    file.write(bytes(header.file_bytes))
                    file.seek(0)
                file.write(header.pack(State(epoch=1 + secrets.randbelow(WORD))))
                file.flush()
                os.fsync(fd)
            os.replace(scratch, path)
        except OSError as error:
            _unlink(scratch)
            if error.errno in FULL:
                room = size(header.file_bytes)
                raise DiskFull(f"there is no room for {room} of n-gram memory in {self.folder}") from None
            raise
        return self._map(name)

    def _quarantine(self, path: Path, error: MemoryCorrupt) -> None:
        n = 1
        while os.path.lexists(aside := path.with_name(f"{path.name}.quarantine-{n}")):
            n += 1
        try:
            path.rename(aside)
            fate = f"It is kept as {aside.name}"
        except OSError as obstacle:
            fate = f"It cannot be set aside: {obstacle.strerror}"
        self._notice(f"{path} is not used as n-gram memory: {error.message}. {fate}.")

    def _map(self, name: str) -> NgramTable:
        return NgramTable.open(self._path(name), name=name, vocab_fp=self.vocab_fp)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.ngm"

    def _files(self) -> list[tuple[str, Path]]:
        """The files of all tables, each with the name of its table."""
        try:
            matches = [(FILE.fullmatch(path.name), path) for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(match["name"], path) for match, path in matches if match]


def _unlink(path: Path) -> None:
    # Windows keeps a file that a process has mapped; the next call of `_settle` tries again.
    with contextlib.suppress(OSError):
        path.unlink()
