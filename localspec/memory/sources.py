"""The names of the sources that a table learnt from; its entries hold only a 16-bit tag of the name."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from localspec.home import write_private
from localspec.memory.workspace import plain

TAGS = 0xFFFF
REMEMBERED_S = 24 * 3600.0
"""seconds for which forgotten tags are kept: no text waits longer to be learnt"""

T = TypeVar("T")
Stamp = tuple[int, int, int]


def tag_of(source: str) -> int:
    """The tag of a source, 1 … 65535. Two names may share a tag: forgetting one then forgets both."""
    digest = hashlib.sha256(plain(source).encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") % TAGS


class _Cached(Generic[T]):
    """A file's parsed content, read again only when the file was replaced or has changed."""

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path, self._parse = path, parse
        self._stamp: Stamp | None = None
        self._value = parse(b"")

    def get(self) -> T:
        try:
            stamp = _stamp(os.stat(self._path))
            if stamp != self._stamp:
                # At worst the stamp is older than the content: then the file is read once more.
                self._value, self._stamp = self._parse(self._path.read_bytes()), stamp
        except OSError:
            self._value, self._stamp = self._parse(b""), None
        return self._value


class Sources:
    """A private file of one JSON string a line. Changing it needs the lock of the folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = _Cached(path, _parse_names)

    def names(self) -> list[str]:
        """The names, oldest first, each once; malformed lines are left out."""
        return list(self._names.get())

    def __contains__(self, name: str) -> bool:
        return plain(name) in self._names.get()

    def add(self, name: str) -> None:
        """Append the name if it is not there yet. Raises :class:`OSError`."""
        if name not in self:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(fd, "wb") as file:
                # The newline in front ends a line that a killed process left half written.
                file.write(b"\n" + _line(name))

    def remove(self, name: str) -> None:
        """Remove a name. Raises :class:`OSError`."""
        if name in self:
            kept = (each for each in self.names() if each != plain(name))
            write_private(self._path, "".join(f"\n{_line(each).decode()}" for each in kept))


class Forgotten:
    """The times at which tags were forgotten: texts that have waited since before are not learnt.

    A private file of one JSON object, for all tables of a vocabulary. It holds no names.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times = _Cached(path, _parse_times)

    def add(self, tag: int) -> None:
        """Note that a tag is forgotten now; needs the lock of the folder. Raises :class:`OSError`."""
        now = time.time()
        times = {each: at for each, at in self._times.get().items() if now - REMEMBERED_S < at <= now}
        write_private(self._path, msgspec.json.encode(times | {tag: now}).decode())

    def is_since(self, tag: int, then: float) -> bool:
        """Return True if the tag was forgotten after ``then``; a future time is of a clock set back, and
        does not count."""
        at = self._times.get().get(tag)
        return at is not None and then <= at <= time.time()


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _parse_names(content: bytes) -> dict[str, None]:
    return dict.fromkeys(name for line in content.split(b"\n") if (name := _name(line)) is not None)


def _parse_times(content: bytes) -> dict[int, float]:
    try:
        return msgspec.json.decode(content, type=dict[int, float])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _line(name: str) -> bytes:
    return msgspec.json.encode(plain(name))


def _name(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
