"""Prefix reuse: caches of ended requests, kept to spare the next turn, fork or keystroke its prefill.

Those of chats are kept on disk, too, so that a chat continued tomorrow needs no prefill.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Generator, Iterable, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from localspec.backends.base import Backend
from localspec.engine.sequence import NO_SLOT, Holder, Sequence, canonical_cells, usable
from localspec.errors import EngineError, LocalspecError
from localspec.home import chat_cache_name, private_opener
from localspec.speculation.proposer import shared_length

log = logging.getLogger(__name__)

WORTH = 64
"""tokens that cells from disk or from memory outside of the backend must spare at least"""
GROWTH = 1.25
"""factor by which a chat grows between two writes: each writes all of its cells, as none can be appended"""
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


class ChatHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    format: int
    model: str
    tokens: list[int]
    canonical: int
    source: str
    crc32: int


class ChatFile(NamedTuple):
    path: Path
    cached: Cached
    crc32: int


class Saved:
    """The files of one model, in ``directory``. The files of all models have at most ``limit`` bytes.
    ``model`` names all that the cells depend on.

    There is one file per chat, of one model on one backend: a line of JSON with the chat and its tokens, then
    the bytes of :meth:`Backend.save`. They can be computed again, so a damaged file or a failing disk costs
    time and nothing else. They contain the chat's text: like the history they are readable by their owner
    only, none is written for a private chat, and each is deleted with its chat."""

    def __init__(self, directory: Path, model: str, limit: int) -> None:
        self._directory, self._model, self._limit = directory, model, limit
        self._files: dict[str, ChatFile] = {}
        """by source"""
        with contextlib.suppress(OSError):
            self._make_room(0)  # the limit may have been lowered
        found = (self._read_header(path) for path in directory.glob("*.state"))
        self._files = {file.cached.source: file for file in found if file is not None}

    def find(self, sequence: Sequence, at_least: int) -> ChatFile | None:
        """Return the file that spares a request the most tokens, at least ``at_least``; None if none does."""
        best = max(self._files.values(), key=lambda file: usable(file.cached, sequence), default=None)
        return best if best is not None and usable(best.cached, sequence) >= at_least else None

    def read(self, file: ChatFile) -> bytearray | None:
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

    def drop(self, file: ChatFile) -> None:
        self._files.pop(file.cached.source, None)
        with contextlib.suppress(OSError):
            file.path.unlink(missing_ok=True)

    def forget(self, source: str) -> None:
        """Delete the file of a chat."""
        if (file := self._files.get(source)) is not None:
            self.drop(file)

    def touch(self, source: str) -> None:
        """Note that a chat is in use: the least recently used files are deleted first."""
        with contextlib.suppress(OSError):
            if (file := self._files.get(source)) is not None:
                os.utime(file.path)

    def should_write(self, cached: Cached, growth: float) -> bool:
        """Return True if ``cached`` is to be written: it is a chat's, not private, not written yet, and by
        ``growth`` longer than what is written of it."""
        if cached.saved or not (cached.remember and cached.source.startswith(CHAT)):
            return False
        file = self._files.get(cached.source)
        written = 0 if file is None else shared_length(file.cached.tokens, cached.tokens)
        return len(cached.tokens) >= max(growth * written, WORTH)

    def write(self, cached: Cached, state: bytearray) -> Generator[None, None, None]:
        """Write ``cached`` in steps, in place of an earlier file of its chat; an error ends this silently."""
        path = self._directory / chat_cache_name(cached.source)
        header = ChatHeader(
            format=FORMAT,
            model=self._model,
            tokens=cached.tokens,
            canonical=cached.canonical,
            source=cached.source,
            crc32=zlib.crc32(state),
        )
        line = msgspec.json.encode(header) + b"\n"
        if len(line) + len(state) > self._limit:
            return
        scratch = path.with_suffix(".part")
        try:
            self._make_room(len(line) + len(state), path)
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
        self._files[cached.source] = ChatFile(path, replace(cached, slot=NO_SLOT), header.crc32)

    def _make_room(self, size: int, place: Path | None = None) -> None:
        """Delete the least recently used files, of all models, until there is room for ``size`` bytes in
        ``place`` of a file; those that killed processes left unfinished count, too."""
        found, total = list[tuple[float, int, Path]](), size
        for path in {*self._directory.parent.glob("*/*")} - {place}:
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
                total += facts.st_size
        for _, its, path in sorted(found):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= its
            self._files = {source: file for source, file in self._files.items() if file.path != path}

    def _read_header(self, path: Path) -> ChatFile | None:
        """Return the file at ``path``, or None if it is of another format or model; then it is deleted."""
        try:
            with path.open("rb") as stream:
                header = msgspec.json.decode(stream.readline(LONGEST_HEADER), type=ChatHeader)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            header = None
        if header is None or (header.format, header.model) != (FORMAT, self._model):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        cached = Cached(NO_SLOT, header.tokens, header.canonical, header.source, remember=True, saved=True)
        return ChatFile(path, cached, header.crc32)


FEW = 2
"""sequences up to which a cache that makes room is set aside: with more, a long one stays in its own"""
COPY = 8
"""tokens that a copy of cells within the backend must spare at least: with 1.5 billion parameters on 2 cores
it takes 12 ms, as long as one token of a prompt; chats without one have a model's own system prompt alike"""

H = TypeVar("H", bound=Holder)


class Prefixes:
    """The caches of ended requests: ``kept`` in sequences of the backend, and ``saved`` on disk.

    When room is needed the one of least worth is evicted. Its worth is the number of its tokens plus the
    worth of the last one evicted before it was stored or used, so that unused ones age (GreedyDual: Young,
    "The k-server dual and loose competitiveness for paging", 1994). The evicted one of most worth is set
    aside in memory, to be restored: with few sequences a short request would cost a long talk its cache."""

    def __init__(self, backend: Backend, saved: Saved | None = None) -> None:
        self._backend, self._saved = backend, saved
        self.kept: list[Cached] = []
        self._floor = 0.0
        self._aside: tuple[Cached, bytearray] | None = None

    def keep(self, sequence: Sequence) -> None:
        """Keep the slot of an ended request to be taken over; close it if the request failed or is to be
        forgotten."""
        if self._saved is not None:
            self._saved.touch(sequence.source)
        failed = sequence.error is not None or sequence.forgotten
        length = 0 if failed else self._backend.length(sequence.slot)
        if not length:
            return self._backend.close(sequence.slot)
        tokens, canonical = sequence.tokens[:length], min(sequence.canonical, length)
        remember = sequence.settings.remember
        self._add(Cached(sequence.slot, tokens, canonical, sequence.source, remember))

    def _add(self, cached: Cached) -> None:
        """Store ``cached``, and drop those that are a beginning of it and have no advantage."""
        for other in list(self.kept):
            begins = other.tokens == cached.tokens[: len(other.tokens)]
            if begins and other.canonical <= cached.canonical:
                self._drop(other)
        cached.worth = self._floor + len(cached.tokens)
        self.kept.append(cached)

    def take(self, sequence: Sequence, running: list[Sequence]) -> None:
        """Give a request a slot, with as many of its tokens as a cache has, or as can be copied from
        ``running`` requests. Raises :class:`EngineBusy` if those hold all sequences."""
        best, spared = self._best(sequence, self.kept)
        self._read_back(sequence, spared + WORTH, running)
        best, spared = self._best(sequence, self.kept)
        lender, lent = self._best(sequence, running)
        if lender is not None and lent >= spared + COPY:
            self.make_room(running)
            return self._copy(lender, sequence)
        # Cut, a cache costs another source many tokens; requests of no chat and no file may each be another.
        is_other = best is not None and (best.source != sequence.source or sequence.source == "run")
        missed = best is not None and is_other and len(best.tokens) - spared >= WORTH
        if best is None or (missed and spared < COPY):
            self.make_room(running)
            return sequence.take(self._backend.open(), 0, 0)
        if missed and self.make_room(running, spare=best):
            best.worth = self._floor + len(best.tokens)
            return self._copy(best, sequence)
        if missed:
            self._set_aside(best)
        self.kept.remove(best)
        try:
            length = self._backend.truncate(best.slot, spared)
        except LocalspecError:
            self._backend.close(best.slot)
            raise
        return sequence.take(best.slot, length, canonical_cells(best, length, sequence))

    def _best(self, sequence: Sequence, candidates: Iterable[H]) -> tuple[H | None, int]:
        """The candidate that spares most tokens, of several the one that loses least; and their number."""
        best: H | None = None
        spared = 0
        for each in sorted(candidates, key=lambda each: len(each.tokens)):
            length = self._usable(each, sequence)
            if length > spared:
                best, spared = each, length
        return best, spared

    def _usable(self, holder: Holder, sequence: Sequence) -> int:
        backend = self._backend
        # A running request may not have fed all of its tokens.
        length = backend.reach(holder.slot, usable(holder, sequence, backend.length(holder.slot)))
        while sequence.settings.strict and length % sequence.chunk:
            # A recurrent state goes back to few lengths: only those where a piece begins are of use.
            length = backend.reach(holder.slot, length // sequence.chunk * sequence.chunk)
        return length

    def _copy(self, holder: Holder, sequence: Sequence) -> None:
        slot = self._backend.fork(holder.slot, self._usable(holder, sequence))
        length = self._backend.length(slot)
        sequence.take(slot, length, canonical_cells(holder, length, sequence))

    def make_room(self, running: Sized, *, spare: Cached | None = None) -> bool:
        """Make sure that a sequence can be opened beside ``running`` ones; return False if nothing can be
        evicted for it: neither ``spare``, nor what is worth more than ``spare``."""
        if len(running) + len(self.kept) < self._backend.capabilities.max_sequences:
            return True
        victim = self._least(spare)
        if victim is None or (spare is not None and victim.worth > spare.worth):
            return False
        self._floor = victim.worth
        self._set_aside(victim)
        self._drop(victim)
        return True

    def _least(self, spare: Cached | None = None) -> Cached | None:
        others = (each for each in self.kept if each is not spare)
        return min(others, key=lambda each: each.worth, default=None)

    def lay_aside(self) -> bool:
        """Free the sequence of the least cache for a measurement; False if that would lose the cache."""
        if (victim := self._least()) is None:
            return False
        self._set_aside(victim)
        is_safe = len(victim.tokens) < WORTH or (self._aside is not None and self._aside[0] is victim)
        if is_safe:
            self._drop(victim)
        return is_safe

    def _set_aside(self, cached: Cached) -> None:
        """Keep a copy in memory, of one of few sequences, unless the one there spares more; that counts for
        less each time."""
        capabilities = self._backend.capabilities
        if len(cached.tokens) < WORTH or not capabilities.saves or capabilities.max_sequences > FEW:
            return
        if self._aside is not None and len(cached.tokens) < self._aside[0].worth:
            self._aside[0].worth *= 0.75
            return
        self._aside = None  # two copies would need twice the memory
        with contextlib.suppress(LocalspecError, MemoryError):
            self._aside = cached, self._backend.save(cached.slot)
            cached.worth = len(cached.tokens)

    def _drop(self, cached: Cached) -> None:
        self.kept.remove(cached)
        self._backend.close(cached.slot)

    def _read_back(self, sequence: Sequence, least: int, running: Sized) -> None:
        """Restore the cache that was set aside, or one on disk that spares more, if it spares the request so
        many tokens at least. Another cache may lose its sequence to it, even if it cannot be restored."""
        aside = 0 if self._aside is None else usable(self._aside[0], sequence)
        file = None if self._saved is None else self._saved.find(sequence, max(least, aside + WORTH))
        if self._saved is not None and file is not None:
            if (read := self._saved.read(file)) is None:
                return
            try:
                self._restore(file.cached, read, running)
            except EngineError as error:
                log.warning("%s cannot be restored and is deleted: %s", file.path, error.message)
                self._saved.drop(file)
        elif self._aside is not None and aside >= least:
            (cached, state), self._aside = self._aside, None
            with contextlib.suppress(LocalspecError):
                self._restore(cached, state, running)

    def _restore(self, cached: Cached, state: bytearray, running: Sized) -> None:
        """Store ``cached`` in a sequence that is made of ``state``. Raises :class:`EngineError`."""
        self.make_room(running)
        self._add(replace(cached, slot=self._backend.restore(state)))

    def save(self, slot: int) -> bytearray | None:
        """The state of a sequence; None, with a warning, if the backend cannot save it."""
        try:
            return self._backend.save(slot)
        except LocalspecError as error:
            log.warning("the KV cache of a request cannot be saved: %s", error.message)
            return None

    def write_chat(self, growth: float) -> Generator[None, None, None] | None:
        """Return the steps of writing one chat's cache to disk, the newest of one that has grown by this
        factor since it was written; None if all are written."""
        if self._saved is None or not self._backend.capabilities.saves:
            return None
        for cached in {each.source: each for each in self.kept}.values():
            if self._saved.should_write(cached, growth):
                state = self.save(cached.slot)
                cached.saved = True
                if state is not None:
                    return self._saved.write(cached, state)
        return None

    def forget(self, source: str) -> None:
        """Drop the caches of requests of ``source``, on disk, too."""
        if self._aside is not None and self._aside[0].source == source:
            self._aside = None
        for cached in [each for each in self.kept if each.source == source]:
            self._drop(cached)
        if self._saved is not None:
            self._saved.forget(source)
