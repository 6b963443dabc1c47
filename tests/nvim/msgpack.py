"""Messages of Neovim's RPC out of a stream of bytes; what goes the other way msgspec packs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

NUMBERS = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
SIZED = {
    **{0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I")},
    **{0xC7: ("ext", ">B"), 0xC8: ("ext", ">H"), 0xC9: ("ext", ">I")},
    **{0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I")},
    **{0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")},
}
CONSTANTS: dict[int, Any] = {0xC0: None, 0xC2: False, 0xC3: True}


class Short(Exception):
    """The message's end has not come yet."""


class Unpacker:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._bytes, self._at = b"", 0

    def feed(self, data: bytes) -> Iterator[Any]:
        self._bytes += data
        while True:
            self._at = 0
            try:
                message = self._value()
            except Short:
                return
            self._bytes = self._bytes[self._at :]
            yield message

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._bytes):
            raise Short
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _value(self) -> Any:
        kind = self._take(1)[0]
        if kind <= 0x7F or kind >= 0xE0:
            return kind if kind <= 0x7F else kind - 0x100
        if kind < 0xA0:
            return self._sized("map" if kind < 0x90 else "array", kind & 0xF)
        if kind < 0xC0:
            return self._sized("text", kind & 0x1F)
        if kind in CONSTANTS:
            return CONSTANTS[kind]
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if 0xD4 <= kind <= 0xD8:
            return self._sized("ext", 1 << (kind - 0xD4))
        what, form = SIZED[kind]
        return self._sized(what, self._number(form))

    def _sized(self, what: str, size: int) -> Any:
        if what == "map":
            return {self._value(): self._value() for _ in range(size)}
        if what == "array":
            return [self._value() for _ in range(size)]
        if what == "ext":
            return self._take(size + 1)
        taken = self._take(size)
        return taken if what == "bytes" else taken.decode(errors="surrogateescape")
