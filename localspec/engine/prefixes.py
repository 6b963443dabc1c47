"""Prefix reuse: caches of ended requests, kept to spare the next turn, fork or keystroke its prefill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from localspec.backends.base import ANY_WIDTH, Backend
from localspec.engine.prefix_tree import PrefixTree
from localspec.engine.sequence import Sequence
from localspec.errors import LocalspecError
from localspec.speculation.draft import shared_length

FEW = 2
"""sequences up to which a cache that makes room is set aside: with more, a long one stays in its own"""
WORTH = 64
"""tokens that cells from disk or from memory outside of the backend must spare at least"""
COPY = 8
"""tokens that a copy of cells within the backend must spare at least: with 1.5 billion parameters on 2 cores
it takes 12 ms, as long as one token of a prompt; chats without one have a model's own system prompt alike"""


class Holder(Protocol):
    """A holder of cells: a running request, or the cache of an ended one; see :mod:`.exactness`."""

    slot: int
    tokens: list[int]
    canonical: int
    source: str


H = TypeVar("H", bound=Holder)


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

    def in_slot(self, slot: int) -> Cached:
        """Return it with another sequence of the backend."""
        return replace(self, slot=slot)


class Taken(NamedTuple):
    """The slot that a request starts with: it holds the first ``length`` tokens, of whose cells the first
    ``canonical`` are such cells."""

    slot: int
    length: int
    canonical: int


def usable(holder: Holder, sequence: Sequence, most: int = ANY_WIDTH) -> int:
    """Return the number of the sequence's tokens that can be taken over, at most ``most``.

    The last token is always fed: its row gives the answer's first one. A strict request takes only cells
    that it would have written itself.
    """
    shared = min(shared_length(holder.tokens, sequence.tokens[:-1]), most)
    if not sequence.settings.strict:
        return shared
    return _canonical(holder, shared, sequence)


def _canonical(holder: Holder, length: int, sequence: Sequence) -> int:
    """Return how many of the first ``length`` cells are those of whole pieces of a prompt."""
    return min(length, holder.canonical) // sequence.chunk * sequence.chunk


class Prefixes:
    """The caches of ended requests, by their tokens.

    When room is needed the one of least worth is evicted. Its worth is the number of its tokens plus the
    worth of the last one evicted before it was stored or used, so that unused ones age (GreedyDual: Young,
    "The k-server dual and loose competitiveness for paging", 1994). The evicted one of most worth is set
    aside in memory, to be restored: with few sequences a short request would cost a long talk its cache.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tree: PrefixTree[Cached] = PrefixTree()
        self._floor = 0.0
        self._aside: tuple[Cached, bytearray] | None = None
        self._spares_aside = 0

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[Cached]:
        return iter(self._tree)

    def keep(self, sequence: Sequence) -> None:
        """Keep the slot of an ended request to be taken over; close it if the request failed or is to be
        forgotten."""
        failed = sequence.error is not None or sequence.forgotten
        length = 0 if failed else self._backend.length(sequence.slot)
        cached = Cached(
            sequence.slot,
            sequence.tokens[:length],
            min(sequence.canonical, length),
            sequence.source,
            sequence.settings.remember,
        )
        if length:
            self.add(cached)
        else:
            self._backend.close(cached.slot)

    def add(self, cached: Cached) -> None:
        """Store ``cached``, and drop those that are a beginning of it and have no advantage."""
        for shared, other in list(self._tree.matches(cached.tokens)):
            if shared == len(other.tokens) and other.canonical <= cached.canonical:
                self._drop(other)
        cached.worth = self._floor + len(cached.tokens)
        self._tree.add(cached.tokens, cached)

    def take(self, sequence: Sequence, running: Iterable[Holder]) -> Taken:
        """Return a slot for a request, with as many of its tokens as a cache has, or as can be copied from
        ``running`` requests. Raises :class:`EngineBusy` if those hold all sequences."""
        running = list(running)
        self._bring_back(sequence, running)
        best, spared = self._best(sequence, self._tree.matches(sequence.tokens))
        lender, lent = self._best(sequence, ((len(each.tokens), each) for each in running))
        if lender is not None and lent >= spared + COPY:
            self.make_room(running)
            return self._copy(lender, sequence)
        missed = best is not None and self._is_missed(best, sequence, spared)
        if best is None or (missed and spared < COPY):
            self.make_room(running)
            return Taken(self._backend.open(), 0, 0)
        if missed and self.make_room(running, spare=best):
            best.worth = self._floor + len(best.tokens)
            return self._copy(best, sequence)
        if missed:
            self._set_aside(best)
        self._tree.remove(best.tokens, best)
        try:
            length = self._backend.truncate(best.slot, self._usable(best, sequence))
            return Taken(best.slot, length, _canonical(best, length, sequence))
        except LocalspecError:
            self._backend.close(best.slot)
            raise

    def spares(self, sequence: Sequence) -> int:
        """The number of the sequence's tokens that a cache would spare."""
        return self._best(sequence, self._tree.matches(sequence.tokens))[1]

    def _best(self, sequence: Sequence, candidates: Iterable[tuple[int, H]]) -> tuple[H | None, int]:
        """Return the candidate that spares most tokens, and their number. Candidates come with the most
        tokens that each can spare."""
        best: H | None = None
        spared = 0
        for most, each in candidates:
            if most <= spared:
                continue
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

    def _copy(self, holder: Holder, sequence: Sequence) -> Taken:
        slot = self._backend.fork(holder.slot, self._usable(holder, sequence))
        length = self._backend.length(slot)
        return Taken(slot, length, _canonical(holder, length, sequence))

    def _is_missed(self, cached: Cached, sequence: Sequence, spared: int) -> bool:
        """Return True if cutting ``cached`` to ``spared`` tokens would cost another source many tokens;
        requests of no chat and no file (``run``) may each be of another."""
        is_other = cached.source != sequence.source or sequence.source == "run"
        return is_other and len(cached.tokens) - spared >= WORTH

    def make_room(self, running: Sized, *, spare: Cached | None = None) -> bool:
        """Make sure that a sequence can be opened beside ``running`` ones; return False if nothing can be
        evicted for it: neither ``spare``, nor what is worth more than ``spare``."""
        if len(running) + len(self) < self._backend.capabilities.max_sequences:
            return True
        victim = self._least(spare)
        if victim is None or (spare is not None and victim.worth > spare.worth):
            return False
        self._floor = victim.worth
        self._set_aside(victim)
        self._drop(victim)
        return True

    def _least(self, spare: Cached | None = None) -> Cached | None:
        """The cache of least worth beside ``spare``."""
        return min((each for each in self if each is not spare), key=lambda each: each.worth, default=None)

    def lay_aside(self) -> bool:
        """Free the sequence of the least cache for a measurement; False if that would lose the cache."""
        if (victim := self._least()) is None:
            return False
        self._set_aside(victim)
        kept = self._aside is not None and self._aside[0] is victim
        if kept or len(victim.tokens) < WORTH:
            self._drop(victim)
            return True
        return False

    def _set_aside(self, cached: Cached) -> None:
        """Keep a copy in memory, of one of few sequences, unless the one there spares more; it counts for
        less each time."""
        if len(cached.tokens) < WORTH or not self._backend.capabilities.saves:
            return
        if self._backend.capabilities.max_sequences > FEW or len(cached.tokens) < self._spares_aside:
            self._spares_aside = self._spares_aside * 3 // 4
            return
        self._aside, self._spares_aside = None, 0  # two copies would need twice the memory
        with contextlib.suppress(LocalspecError, MemoryError):
            self._aside, self._spares_aside = (cached, self._backend.save(cached.slot)), len(cached.tokens)

    def _bring_back(self, sequence: Sequence, running: Sized) -> None:
        """Restore the cache that was set aside, if it spares the request more than those in slots."""
        if self._aside is None or len(running) >= self._backend.capabilities.max_sequences:
            return
        cached, state = self._aside
        if usable(cached, sequence) >= self.spares(sequence) + WORTH:
            self._aside, self._spares_aside = None, 0
            with contextlib.suppress(LocalspecError):
                self.restore(cached, state, running)

    def restore(self, cached: Cached, state: bytearray, running: Sized) -> None:
        """Store ``cached`` in a sequence that is made of ``state``. Raises :class:`EngineError`."""
        self.make_room(running)
        self.add(cached.in_slot(self._backend.restore(state)))

    def forget(self, source: str) -> None:
        """Close the caches of requests of ``source``."""
        if self._aside is not None and self._aside[0].source == source:
            self._aside, self._spares_aside = None, 0
        for cached in [each for each in self if each.source == source]:
            self._drop(cached)

    def _drop(self, cached: Cached) -> None:
        self._tree.remove(cached.tokens, cached)
        self._backend.close(cached.slot)
