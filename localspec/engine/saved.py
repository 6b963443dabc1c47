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
import time
import zlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.engine.prefix_tree import PrefixTree
from localspec.engine.prefixes import WORTH, Cached, usable
from localspec.engine.sequence import NO_SLOT, Sequence
from localspec.home import chat_cache_name, private_opener

log = logging.getLogger(__name__)

FORMAT = 5
PIECE = 8 << 20
"""bytes written in one step"""
LONGEST_HEADER = 64 << 20
"""the most bytes of a header that are read"""
ABANDONED_S = 600.0
"""seconds after which an unfinished file counts as left by a killed process"""
CHAT = "chat:"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    format: int
    model: str
    tokens: list[int]
    canonical: int
    source: str
    size: int
    crc32: int


class File(NamedTuple):
    """A saved chat."""

    path: Path
    cached: Cached
    size: int
    crc32: int
    start: int


class Saved:
    """The files of one model, in ``directory``. The files of all models have at most ``limit`` bytes.

    ``model`` names all that the cells depend on.
    """

    def __init__(self, directory: Path, model: str, limit: int) -> None:
        self._directory, self._model, self._limit = directory, model, limit
        self._tree: PrefixTree[File] = PrefixTree()
        for path, written, _ in _with_stat(directory.glob("*.part")):
            if time.time() - written > ABANDONED_S:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._make_room(0)  # the limit may have been lowered
        for path in directory.glob("*.state"):
            file = self._read_header(path)
            if file is not None:
                self._tree.add(file.cached.tokens, file)

    def find(self, sequence: Sequence, at_least: int) -> File | None:
        """Return the file that spares a request the most tokens, at least ``at_least``; None if none does."""
        found = None
        for most, file in self._tree.matches(sequence.tokens):
            if most < at_least:
                break
            length = usable(file.cached, sequence)
            if length >= at_least:
                found, at_least = file, length + 1
        return found

    def read(self, file: File) -> bytearray | None:
        """Return the state in a file; None if it is damaged or cannot be read, and then delete it."""
        try:
            with file.path.open("rb") as stream:
                stream.seek(file.start)
                state = bytearray(stream.read(file.size + 1))
            os.utime(file.path)
        except OSError as error:
            log.warning("%s cannot be read: %s", file.path, error.strerror)
            state = bytearray()
        if len(state) == file.size and zlib.crc32(state) == file.crc32:
            return state
        self.drop(file)
        return None

    def drop(self, file: File) -> None:
        """Delete a file."""
        with contextlib.suppress(KeyError, ValueError):
            self._tree.remove(file.cached.tokens, file)
        with contextlib.suppress(OSError):
            file.path.unlink(missing_ok=True)

    def forget(self, source: str) -> None:
        """Delete the files of a chat."""
        for file in [each for each in self._tree if each.cached.source == source]:
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
            size=len(state),
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
        file = File(path, cached.in_slot(NO_SLOT), len(state), header.crc32, len(line))
        self._tree.add(cached.tokens, file)

    def _make_room(self, size: int) -> None:
        """Delete the least recently used files, of all models, until there is room for ``size`` bytes."""
        files = sorted(_with_stat(self._directory.parent.glob("*/*.state")), key=lambda each: each[1])
        total = size + sum(each[2] for each in files)
        for path, _, its in files:
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= its
            for file in [each for each in self._tree if each.path == path]:
                self.drop(file)

    def _read_header(self, path: Path) -> File | None:
        try:
            with path.open("rb") as stream:
                line = stream.readline(LONGEST_HEADER)
            header = msgspec.json.decode(line, type=Header)
            whole = path.stat().st_size == len(line) + header.size
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            header, whole = None, False
        if header is None or not whole or (header.format, header.model) != (FORMAT, self._model):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        cached = Cached(
            NO_SLOT,
            header.tokens,
            header.canonical,
            header.source,
            remember=True,
            saved=True,
        )
        return File(path, cached, header.size, header.crc32, len(line))


def _with_stat(paths: Iterable[Path]) -> list[tuple[Path, float, int]]:
    """Return (path, time of last use, size in bytes) of those that still exist."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            facts = path.stat()
            found.append((path, facts.st_mtime, facts.st_size))
    return found
