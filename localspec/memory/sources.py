"""The names of the sources a table learned from; its entries hold a 16-bit tag of the name only."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from localspec.home import write_private

TAGS = 0xFFFF


def tag_of(source: str) -> int:
    """1 … 65535. Two names may share a tag: forgetting one then forgets both."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).digest()
    return 1 + int.from_bytes(digest[:4], "big") % TAGS


class Sources:
    """A private file of one JSON string a line, only ever appended to while a table is in use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        """The names by age, each once; a line that is none is left out."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError:
            return []
        return list(dict.fromkeys(name for line in lines if (name := _name(line)) is not None))

    def add(self, *names: str) -> None:
        """Append the names that are not there yet. Raises :class:`OSError`."""
        known = set(self.names())
        lines = [b"\n" + _line(name) for name in names if name not in known]
        if lines:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(fd, "wb") as file:
                # The newline in front ends what a killed process left half written.
                file.write(b"".join(lines))

    def remove(self, name: str) -> None:
        """Forget a name. Raises :class:`OSError`."""
        names = self.names()
        if name in names:
            lines = (_line(each).decode() for each in names if each != name)
            write_private(self._path, "".join(f"\n{line}" for line in lines))


def _line(name: str) -> bytes:
    return msgspec.json.encode(name.encode("utf-8", "replace").decode())


def _name(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
