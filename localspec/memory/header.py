"""The first page of a table's file: the header, which never changes, and the state, which does."""

from __future__ import annotations

import secrets
import struct
from typing import NamedTuple

from localspec.errors import MemoryCorrupt, NewerFormat
from localspec.home import plain
from localspec.memory.hashing import WORD

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
    """Check a file's first page against the file's size.

    Raises :class:`MemoryCorrupt` for the first defect, or its subclass :class:`NewerFormat`.
    """
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
