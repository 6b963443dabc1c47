"""A small model of the same vocabulary guesses; the sequences of a batch draft together.

Leviathan et al., "Fast inference from transformers via speculative decoding" (2211.17192).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Backend, Logits, Span
from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.noise import Stream
from localspec.speculation.proposer import Proposer
from localspec.speculation.sampling import Distribution


@dataclass(slots=True)
class _Cursor:
    """A request's sequence in the draft's cache; ``fed`` is what stands there."""

    sequence: int
    fed: list[int] = field(default_factory=list)
    agreed: int = 0
    """how many of ``fed`` are known to equal the context"""


@dataclass(slots=True)
class _Drafting:
    """One ask in progress."""

    ask: Ask
    cursor: _Cursor
    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)

    @property
    def pending(self) -> list[int]:
        """What the draft model has not seen yet."""
        done = len(self.cursor.fed)
        context = self.ask.context
        return [*context[done:], *self.tokens[max(0, done - len(context)) :]]


class DraftModel(Proposer):
    """Owns the draft's cache; it is filled when a request first asks (lazily) and rolled back by itself.

    ``vocabulary_size`` is the target's: ids above the smaller vocabulary are never drafted.
    """

    name = "draft"

    def __init__(self, backend: Backend, vocabulary_size: int) -> None:
        self.backend = backend
        self._size = min(vocabulary_size, backend.vocabulary.size)
        self._cursors: dict[int, _Cursor] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        work = {i: self._begin(ask) for i, ask in enumerate(asks) if self._room(ask) > 0}
        live = list(work.values())
        while live:
            self._step(live)
            live = [d for d in live if len(d.tokens) < self._room(d.ask)]
        return [self._finish(work[i]) if i in work else NOTHING for i in range(len(asks))]

    def _room(self, ask: Ask) -> int:
        """How many tokens can be drafted before the draft model's own context ends."""
        known = (
            max(ask.context, default=0) < self._size if self._size < self.backend.vocabulary.size else True
        )
        return min(ask.k, self.backend.capabilities.n_ctx - len(ask.context)) if known else 0

    def _begin(self, ask: Ask) -> _Drafting:
        """Roll the cache back to what it shares with the context, and feed all but the newest token."""
        cursor = self._cursors.get(ask.request)
        if cursor is None:
            cursor = self._cursors[ask.request] = _Cursor(self.backend.open())
        shared = cursor.agreed
        limit = min(len(cursor.fed), len(ask.context) - 1)
        while shared < limit and cursor.fed[shared] == ask.context[shared]:
            shared += 1
        if shared < len(cursor.fed):
            self.backend.truncate(cursor.sequence, shared)
            del cursor.fed[shared:]
        drafting = _Drafting(ask, cursor)
        chunk = self.backend.capabilities.max_batch
        while len(drafting.pending) > chunk:
            self._feed([(drafting, drafting.pending[:chunk])], rows=0)
        cursor.agreed = len(cursor.fed)
        return drafting

    def _step(self, live: Sequence[_Drafting]) -> None:
        """Draft one token for each, in as few forwards as fit."""
        chunk = self.backend.capabilities.max_batch
        group: list[tuple[_Drafting, list[int]]] = []
        width = 0
        for drafting in live:
            pending = drafting.pending
            if group and width + len(pending) > chunk:
                self._draft(group)
                group, width = [], 0
            group.append((drafting, pending))
            width += len(pending)
        self._draft(group)

    def _draft(self, group: Sequence[tuple[_Drafting, list[int]]]) -> None:
        if all(drafting.ask.sampler.params.greedy for drafting, _ in group) and not any(
            drafting.ask.sampler.params.penalises for drafting, _ in group
        ):
            for (drafting, _), token in zip(group, self._feed(group, rows=1).argmax(), strict=True):
                drafting.tokens.append(min(token, self._size - 1))
            return
        logits = self._feed(group, rows=1)
        for i, (drafting, _) in enumerate(group):
            self._sample(drafting, logits.rows(i, i + 1)[0, : self._size])

    def _sample(self, drafting: _Drafting, row: NDArray[np.float32]) -> None:
        ask, position = drafting.ask, len(drafting.ask.context) + len(drafting.tokens)
        if ask.sampler.params.greedy:
            drafting.tokens.append(ask.sampler.pick(row, drafting.tokens, position))
            return
        q = ask.sampler.distribution(row, drafting.tokens)
        # Under a seed the target's own sample decides; drawing with the same numbers meets it most often.
        stream = Stream.TARGET if ask.sampler.seeded else Stream.DRAFT
        drafting.tokens.append(q.sample(ask.sampler.noise, position, stream))
        drafting.q.append(q)

    def _feed(self, group: Sequence[tuple[_Drafting, list[int]]], *, rows: int) -> Logits:
        logits = self.backend.forward([Span(d.cursor.sequence, tokens, rows) for d, tokens in group])
        for drafting, tokens in group:
            drafting.cursor.fed.extend(tokens)
        return logits

    def _finish(self, drafting: _Drafting) -> Draft:
        q = tuple(drafting.q) if drafting.q and not drafting.ask.sampler.seeded else None
        return Draft(tuple(drafting.tokens), self.name, q)

    def stop(self, request: int) -> None:
        cursor = self._cursors.pop(request, None)
        if cursor is not None:
            self.backend.close(cursor.sequence)
