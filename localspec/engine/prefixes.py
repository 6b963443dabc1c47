"""Prefix reuse: caches of ended requests, kept to spare the next turn, fork or keystroke its prefill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from localspec.backends.base import ANY_WIDTH, Backend, Capabilities
from localspec.engine.pieces import Pieces
from localspec.engine.prefix_tree import PrefixTree
from localspec.engine.sequence import Sequence
from localspec.errors import LocalspecError
from localspec.speculation.draft import shared_length

WORTH = 64
"""tokens that a copy of cells, or reading them from disk, must spare at least"""


class Holder(Protocol):
    """A holder of cells: a running request, or the cache of an ended one.

    The first ``prompt_length`` tokens were read as a prompt, in pieces of at most ``chunk``; the first
    ``exact`` cells are those of plain decoding.
    """

    slot: int
    tokens: list[int]
    prompt_length: int
    exact: int
    chunk: int
    source: str


H = TypeVar("H", bound=Holder)


@dataclass(eq=False, slots=True)
class Cached:
    """The cache of an ended request, in a sequence of the backend; the least ``worth`` is evicted first."""

    slot: int
    tokens: list[int]
    prompt_length: int
    exact: int
    chunk: int
    source: str
    remember: bool
    worth: float = 0.0
    saved: bool = False
    """True if it is on disk"""

    def in_slot(self, slot: int) -> Cached:
        """Return it with another sequence of the backend."""
        return replace(self, slot=slot)


class Taken(NamedTuple):
    """The slot that a request starts with: it holds the first ``length`` tokens, of which the cells of the
    first ``exact`` are as plain decoding would have written them."""

    slot: int
    length: int
    exact: int


def usable(
    holder: Holder, sequence: Sequence, capabilities: Capabilities, most: int = ANY_WIDTH
) -> tuple[int, int]:
    """Return the number of the sequence's tokens that can be taken over, at most ``most``, and the number of
    exact cells among them.

    The last token is always fed: its row gives the answer's first one. A strict request takes only cells
    that it would have written itself.
    """
    shared = min(shared_length(holder.tokens, sequence.tokens[:-1]), most)
    exact = exact_of(holder, sequence, capabilities, shared)
    return (exact if sequence.settings.strict else shared), exact


def exact_of(holder: Holder, sequence: Sequence, capabilities: Capabilities, shared: int) -> int:
    """Return the number of the ``shared`` leading cells that equal, to the bit, a prefill of ``sequence``."""
    if capabilities.exact_piece == ANY_WIDTH:
        return min(shared, holder.exact)
    if holder.chunk != sequence.chunk:
        return 0
    pieces = Pieces(sequence.chunk, capabilities)
    return pieces.shared(sequence.prompt_length, holder.prompt_length, min(shared, holder.exact))


class Prefixes:
    """The caches of ended requests, by their tokens.

    When room is needed the one of least worth is evicted. Its worth is the number of its tokens plus the
    worth of the last one evicted before it was stored or used, so that unused ones age (GreedyDual: Young,
    "The k-server dual and loose competitiveness for paging", 1994).
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tree: PrefixTree[Cached] = PrefixTree()
        self._floor = 0.0

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
            sequence.prompt_length,
            min(sequence.exact, length),
            sequence.chunk,
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
            same = other.chunk == cached.chunk and self._lends(other) <= self._lends(cached)
            if shared == len(other.tokens) and same:
                self._drop(other)
        cached.worth = self._floor + len(cached.tokens)
        self._tree.add(cached.tokens, cached)

    def _lends(self, cached: Cached) -> int:
        """Return the number of leading cells that a longer prompt of a strict request may take over."""
        pieces = Pieces(cached.chunk, self._backend.capabilities)
        return pieces.shared(ANY_WIDTH, cached.prompt_length, cached.exact)

    def take(self, sequence: Sequence, running: Iterable[Holder]) -> Taken:
        """Return a slot for a request, with as many of its tokens as a cache has, or as can be copied from
        ``running`` requests. Raises :class:`EngineBusy` if those hold all sequences."""
        running = list(running)
        best, spared = self._best(sequence, self._tree.matches(sequence.tokens))
        lender, lent = self._best(sequence, ((len(each.tokens), each) for each in running))
        if lender is not None and lent >= spared + WORTH:
            self.make_room(running)
            return self._copy(lender, sequence)
        missed = best is not None and self._is_missed(best, sequence, spared)
        if best is None or (missed and spared < WORTH):
            self.make_room(running)
            return Taken(self._backend.open(), 0, 0)
        if missed and self.make_room(running, spare=best):
            best.worth = self._floor + len(best.tokens)
            return self._copy(best, sequence)
        self._tree.remove(best.tokens, best)
        length, exact = self._usable(best, sequence)
        try:
            return Taken(best.slot, self._backend.truncate(best.slot, length), exact)
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
            length = self._usable(each, sequence)[0]
            if length > spared:
                best, spared = each, length
        return best, spared

    def _usable(self, holder: Holder, sequence: Sequence) -> tuple[int, int]:
        backend = self._backend
        # A running request may not have fed all of its tokens.
        most, _ = usable(holder, sequence, backend.capabilities, backend.length(holder.slot))
        length = backend.reach(holder.slot, most)
        exact = exact_of(holder, sequence, backend.capabilities, length)
        while sequence.settings.strict and exact < length:
            # A recurrent state goes back to few lengths: only those where a piece begins are of use.
            length = backend.reach(holder.slot, exact)
            exact = exact_of(holder, sequence, backend.capabilities, length)
        return length, exact

    def _copy(self, holder: Holder, sequence: Sequence) -> Taken:
        length, exact = self._usable(holder, sequence)
        slot = self._backend.fork(holder.slot, length)
        length = self._backend.length(slot)
        return Taken(slot, length, min(length, exact))

    def _is_missed(self, cached: Cached, sequence: Sequence, spared: int) -> bool:
        """Return True if cutting ``cached`` to ``spared`` tokens would cost another source many tokens."""
        return cached.source != sequence.source and len(cached.tokens) - spared >= WORTH

    def make_room(self, running: Sized, *, spare: Cached | None = None) -> bool:
        """Make sure that a sequence can be opened beside ``running`` ones; return False if nothing can be
        evicted for it: neither ``spare``, nor what is worth more than ``spare``.
        """
        if len(running) + len(self) < self._backend.capabilities.max_sequences:
            return True
        victim = min((each for each in self if each is not spare), key=_worth, default=None)
        if victim is None or (spare is not None and victim.worth > spare.worth):
            return False
        self._evict(victim)
        return True

    def evict(self) -> bool:
        """Close the cache of least worth; return False if there is none."""
        victim = min(self, key=_worth, default=None)
        if victim is not None:
            self._evict(victim)
        return victim is not None

    def _evict(self, victim: Cached) -> None:
        self._floor = victim.worth
        self._drop(victim)

    def forget(self, source: str) -> None:
        """Close the caches of requests of ``source``."""
        for cached in [each for each in self if each.source == source]:
            self._drop(cached)

    def _drop(self, cached: Cached) -> None:
        self._tree.remove(cached.tokens, cached)
        self._backend.close(cached.slot)


def _worth(cached: Cached) -> float:
    return cached.worth
