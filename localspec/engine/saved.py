"""The KV caches of chats on disk, so that a chat continued tomorrow needs no prefill.

There is one file per chat, of one model on one backend: a line of JSON with the chat and its tokens, then the
bytes of :meth:`Backend.save`. They can be computed again, so a damaged file or a failing disk costs time and
nothing else. They contain the chat's text: like the history they are readable by their owner only, none is
written for a private chat, and each is deleted with its chat.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.engine.exactness import usable
from localspec.engine.sequence import NO_SLOT, Sequence
from localspec.home import chat_cache_name, private_opener

log = logging.getLogger(__name__)

WORTH = 64
"""tokens that cells from disk or from memory outside of the backend must spare at least"""
FORMAT = 5
PIECE = 8 << 20
"""bytes written in one step"""
LONGEST_HEADER = 64 << 20
"""the most bytes of a header that are read"""
CHAT = "chat:"


@dataclass(eq=False, slots=True)
class Cached:
    """The cache of an ended request, in a sequence of the backend; the least ``worth`` is evicted first."""

    slot: int
    tokens: list[int]
    canonical: int
    source: str
    remember: bool
    worth: float = 0.0
    saved: bool = False
    """True if it is on disk"""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    format: int
    model: str
    tokens: list[int]
    canonical: int
    source: str
    crc32: int


class File(NamedTuple):
    """A saved chat."""

    path: Path
    cached: Cached
    crc32: int


class Saved:
    """The files of one model, in ``directory``. The files of all models have at most ``limit`` bytes.

    ``model`` names all that the cells depend on.
    """

    def __init__(self, directory: Path, model: str, limit: int) -> None:
        self._directory, self._model, self._limit = directory, model, limit
        self._files: list[File] = []
        with contextlib.suppress(OSError):
            self._make_room(0)  # the limit may have been lowered
        found = (self._read_header(path) for path in directory.glob("*.state"))
        self._files = [file for file in found if file is not None]

    def find(self, sequence: Sequence, at_least: int) -> File | None:
        """Return the file that spares a request the most tokens, at least ``at_least``; None if none does."""
        best = max(self._files, key=lambda file: usable(file.cached, sequence), default=None)
        return best if best is not None and usable(best.cached, sequence) >= at_least else None

    def read(self, file: File) -> bytearray | None:
        """Return the state in a file; None if it is damaged or cannot be read, and then delete it."""
        try:
            with file.path.open("rb") as stream:
                stream.readline()
                state = bytearray(stream.read())
            os.utime(file.path)
        except OSError as error:
            log.warning("%s cannot be read: %s", file.path, error.strerror)
            state = bytearray()
        if zlib.crc32(state) == file.crc32:
            return state
        self.drop(file)
        return None

    def drop(self, file: File) -> None:
        """Delete a file."""
        with contextlib.suppress(ValueError):
            self._files.remove(file)
        with contextlib.suppress(OSError):
            file.path.unlink(missing_ok=True)

    def forget(self, source: str) -> None:
        """Delete the files of a chat."""
        for file in [each for each in self._files if each.cached.source == source]:
            self.drop(file)

    def should_write(self, cached: Cached) -> bool:
        """Return True if ``cached`` is to be written: it is a chat's, not private, and not written yet."""
        chat = cached.remember and cached.source.startswith(CHAT)
        return chat and not cached.saved and len(cached.tokens) >= WORTH

    def write(self, cached: Cached, state: bytearray) -> Generator[None, None, None]:
        """Write ``cached`` in steps, in place of an earlier file of its chat; an error ends this silently."""
        path = self._directory / chat_cache_name(cached.source)
        header = Header(
            format=FORMAT,
            model=self._model,
            tokens=cached.tokens,
            canonical=cached.canonical,
            source=cached.source,
            crc32=zlib.crc32(state),
        )
        line = msgspec.json.encode(header) + b"\n"
        self.forget(cached.source)
        if len(line) + len(state) > self._limit:
            return
        scratch = path.with_suffix(".part")
        try:
            self._make_room(len(line) + len(state))
            with open(scratch, "wb", opener=private_opener) as stream:
                stream.write(line)
                for at in range(0, len(state), PIECE):
                    stream.write(memoryview(state)[at : at + PIECE])
                    yield
            scratch.replace(path)
        except OSError as error:
            log.warning("the KV cache of a chat cannot be written to %s: %s", path, error.strerror)
            return
        except GeneratorExit:
            cached.saved = False
            raise
        finally:
            scratch.unlink(missing_ok=True)
        self._files.append(File(path, replace(cached, slot=NO_SLOT), header.crc32))

    def _make_room(self, size: int) -> None:
        """Delete the least recently used files, of all models, until there is room for ``size`` bytes; files
        that killed processes left unfinished count, too."""
        found, total = list[tuple[float, int, Path]](), size
        for path in self._directory.parent.glob("*/*"):
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
                total += facts.st_size
        for _, its, path in sorted(found):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= its
            self._files = [each for each in self._files if each.path != path]

    def _read_header(self, path: Path) -> File | None:
        """Return the file at ``path``, or None if it is of another format or model; then it is deleted."""
        try:
            with path.open("rb") as stream:
                header = msgspec.json.decode(stream.readline(LONGEST_HEADER), type=Header)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            header = None
        if header is None or (header.format, header.model) != (FORMAT, self._model):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        cached = Cached(NO_SLOT, header.tokens, header.canonical, header.source, remember=True, saved=True)
        return File(path, cached, header.crc32)
