"""Drafts by a small model of the same vocabulary; the sequences of a batch draft together.

Leviathan et al., "Fast inference from transformers via speculative decoding" (2211.17192).
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Backend, Span
from localspec.errors import LocalspecError
from localspec.speculation.costs import FIRST, WIDE, CostCurve
from localspec.speculation.noise import NoiseStream
from localspec.speculation.proposer import NOTHING, Ask, Draft, Proposer, nothing, shared_length
from localspec.speculation.sampling import Distribution, Mask
from localspec.speculation.verify import ForwardRows

CERTAINTY = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""steps of the draft model's top probability: a token's evidence is the number of steps it has reached"""
CHUNK = 256
"""the most tokens of context fed per round; a longer context is fed over several rounds"""
SLOWER = 1.1
"""largest factor from one estimate of the time to choose a token to the next"""
LOOKAHEAD = 48.0
"""tokens over which the price of the draft model's prefill is spread where the answer's length is unknown"""


@dataclass(slots=True)
class _Cursor:
    """A request's sequence in the draft model's cache; ``fed`` holds its tokens."""

    sequence: int
    fed: list[int] = field(default_factory=list)
    agreed: int = 0
    """number of tokens of ``fed`` that were found equal to the context"""
    checked: int = 0
    """number of tokens of the context that were found in the draft model's vocabulary"""
    choosing_s: float = 0.0
    """estimated seconds to choose a token from a row, other than by argmax; 0 before the first measurement"""

    def follow(self, context: Sequence[int]) -> int:
        """The number of tokens of ``fed`` that equal the context's; never all of the context, because its
        newest token is always fed again."""
        shared, limit = self.agreed, min(len(self.fed), len(context) - 1)
        while shared < limit and self.fed[shared] == context[shared]:
            shared += 1
        self.agreed = min(shared, limit)
        return self.agreed

    def readable(self, context: Sequence[int], size: int) -> bool:
        """Return True if every token of the context is in the draft model's vocabulary of ``size`` tokens."""
        while self.checked < len(context) and context[self.checked] < size:
            self.checked += 1
        return self.checked == len(context)


@dataclass(slots=True)
class _Drafting:
    """One ask in progress."""

    ask: Ask
    cursor: _Cursor
    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)
    evidence: list[int] = field(default_factory=list)
    stopped: bool = False

    @property
    def pending(self) -> list[int]:
        """The tokens of context and draft that were not fed yet."""
        done = len(self.cursor.fed)
        context = self.ask.context
        return [*context[done:], *self.tokens[max(0, done - len(context)) :]]

    def admits(self, evidence: int) -> bool:
        """Return True if the next token is to be drafted from a row with this evidence."""
        gate = self.ask.gate
        self.stopped = gate is not None and not gate.admits(evidence)
        return not self.stopped

    def take(self, evidence: int, token: int) -> None:
        self.tokens.append(token)
        self.evidence.append(evidence)

    def goes_on(self, room: int) -> bool:
        """Return True if another row is to be computed."""
        gate, has_room = self.ask.gate, not self.stopped and len(self.tokens) < room
        return has_room and (gate is None or gate.goes_on())


class DraftModel(Proposer):
    """Drafts by a model, and owns its cache: feeds a request's context before its first draft, a chunk per
    round, later the tokens of rounds without its drafts, and rolls rejected tokens back.

    ``vocabulary_size`` is the target's: ids beyond the smaller vocabulary are never drafted. ``costs``
    learns the seconds of the draft model's forwards.
    """

    name = "draft"
    costly = True
    prior = (0.1, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.67, 0.78, 0.88, 0.93, 0.97, 0.99)

    def __init__(self, backend: Backend, vocabulary_size: int, costs: CostCurve | None = None) -> None:
        self.backend = backend
        self.costs = costs or CostCurve()
        self._size = min(vocabulary_size, backend.vocabulary.size)
        self._cursors: dict[int, _Cursor] = {}
        self._idle: list[_Cursor] = []
        """cursors of ended requests, oldest first, which new requests can take over"""
        self._expected: dict[int, int] = {}
        """by request without a cursor: tokens that it shares with an idle one"""

    @property
    def learnt_as(self) -> str:
        return name_accuracy(self.backend)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = [NOTHING for _ in asks]
        work: dict[int, _Drafting] = {}
        for i, ask in enumerate(asks):
            if self._room(ask) <= 0:
                continue
            drafting = self._begin(ask)
            if len(drafting.pending) > CHUNK:
                self._feed([(drafting, drafting.pending[:CHUNK])], rows=0)
                drafts[i] = nothing("the draft model is reading the context")
            else:
                work[i] = drafting
        live = sorted(work.values(), key=lambda drafting: drafting.cursor.sequence)
        while live:
            self._step(live)
            live = [drafting for drafting in live if drafting.goes_on(self._room(drafting.ask))]
        for i, made in work.items():
            q = tuple(made.q) if made.q and not made.ask.sampler.seeded else None
            draft = Draft(tuple(made.tokens), self.name, q, evidence=tuple(made.evidence))
            drafts[i] = draft if made.tokens else nothing("the draft model is not sure enough")
        return drafts

    def price(self, ask: Ask, k: int) -> float:
        """The seconds of ``k`` forwards of one token, of choosing from their rows, and of feeding the missing
        context, which is spread over many tokens if it is a prefill."""
        catch_up = self.catch_up(ask)
        cursor = self._cursors.get(ask.request)
        choosing_s = cursor.choosing_s if cursor else 0.0
        if self._behind(ask) > WIDE:
            # Paid once: as many tokens are expected to follow as were generated, within max_tokens.
            catch_up /= max(1.0, min(max(LOOKAHEAD, ask.answered), ask.left))
        return k * (self.costs.seconds(1, len(ask.context)) + choosing_s) + catch_up

    def catch_up(self, ask: Ask) -> float:
        """The extra seconds of the forward that feeds the missing context beside the newest token."""
        length = len(ask.context)
        return max(self.costs.seconds(self._behind(ask), length) - self.costs.seconds(1, length), 0.0)

    def _behind(self, ask: Ask) -> int:
        """The number of tokens of the context that are not in the draft model's cache."""
        cursor = self._cursors.get(ask.request)
        if cursor is not None:
            return len(ask.context) - cursor.follow(ask.context)
        if ask.request not in self._expected:
            shared = (shared_length(idle.fed, ask.context) for idle in self._idle)
            self._expected[ask.request] = max(shared, default=0)
        return len(ask.context) - min(self._expected[ask.request], len(ask.context) - 1)

    def _room(self, ask: Ask) -> int:
        """The number of tokens that can be drafted before the draft model's own context is full; 0 or less
        where none can, also because the context has a token that the draft model's vocabulary lacks."""
        cursor = self._cursors.get(ask.request)
        size = self.backend.vocabulary.size
        if not (cursor.readable(ask.context, size) if cursor else max(ask.context, default=0) < size):
            return 0
        return min(ask.k, self.backend.capabilities.n_ctx - len(ask.context))

    def _begin(self, ask: Ask) -> _Drafting:
        """Begin a draft: roll the cache back to the tokens that it shares with the context."""
        cursor = self._cursors.get(ask.request)
        if cursor is None:
            cursor = self._cursors[ask.request] = self._open(ask.context)
        # After a failed proposal the cells may differ from the tokens noted.
        length = self.backend.length(cursor.sequence)
        shared = min(cursor.follow(ask.context), length)
        if shared < max(len(cursor.fed), length):
            del cursor.fed[self.backend.truncate(cursor.sequence, shared) :]
        return _Drafting(ask, cursor)

    def _open(self, context: list[int]) -> _Cursor:
        """Return a cursor for a new request: the idle one that shares most with it, or a new one."""
        best = max(self._idle, key=lambda cursor: shared_length(cursor.fed, context), default=None)
        full = len(self._cursors) + len(self._idle) >= self.backend.capabilities.max_sequences
        if best is None or (not full and shared_length(best.fed, context) < WIDE):
            return _Cursor(self.backend.open())
        self._idle.remove(best)
        best.agreed = best.checked = 0
        return best

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
        rows = self._feed(group, rows=1)
        if all(d.ask.sampler.takes_argmax for d, _ in group):
            for (drafting, _), token, margin in zip(group, rows.argmax, rows.margins, strict=True):
                # Relative to the runner-up alone: the whole softmax would cost as much as the row.
                evidence = certainty_of(1.0 / (1.0 + math.exp(-margin)))
                if drafting.admits(evidence):
                    drafting.take(evidence, min(token, self._size - 1))
            return
        for i, (drafting, _) in enumerate(group):
            started, cursor = time.perf_counter(), drafting.cursor
            self._sample(drafting, rows.row(i)[: self._size])
            took = time.perf_counter() - started
            # Interference only lengthens a measurement: the estimate rises by SLOWER at most.
            cursor.choosing_s = min(took, SLOWER * cursor.choosing_s) if cursor.choosing_s else took

    def _sample(self, drafting: _Drafting, row: NDArray[np.float32]) -> None:
        ask, position = drafting.ask, len(drafting.ask.context) + len(drafting.tokens)
        q = ask.sampler.distribution(row, drafting.tokens)
        evidence = certainty_of(float(q.probabilities.max()))
        if not drafting.admits(evidence):
            return
        if ask.sampler.params.greedy:
            drafting.take(evidence, ask.sampler.pick(row, drafting.tokens, position))
        else:
            # With a seed the target's own sample decides: drawing with the same numbers gives it most often.
            stream = NoiseStream.TARGET if ask.sampler.seeded else NoiseStream.DRAFT
            drafting.take(evidence, q.sample(ask.sampler.noise, position, stream))
            drafting.q.append(q)
        if ask.sampler.mask is not None:
            self._take_forced(drafting, ask.sampler.mask)

    def _take_forced(self, drafting: _Drafting, mask: Mask) -> None:
        """Draft what a grammar forces next, without forwards."""
        room = self._room(drafting.ask)
        while len(drafting.tokens) < room:
            token = mask.only(drafting.tokens)
            if token is None or token >= self._size or not drafting.admits(len(CERTAINTY)):
                return
            drafting.take(len(CERTAINTY), token)
            if drafting.q:
                drafting.q.append(Distribution(np.array([token]), np.ones(1)))

    def _feed(self, group: Sequence[tuple[_Drafting, list[int]]], *, rows: int) -> ForwardRows:
        started = time.perf_counter()
        spans = [Span(d.cursor.sequence, tokens, rows, exact=False) for d, tokens in group]
        forward = ForwardRows(self.backend.forward(spans))
        if rows:
            forward.wait(whole=any(not d.ask.sampler.takes_argmax for d, _ in group))
        width = sum(len(tokens) for _, tokens in group)
        longest = max(len(d.cursor.fed) for d, _ in group)
        self.costs.observe(width, longest, time.perf_counter() - started)
        for drafting, tokens in group:
            drafting.cursor.fed.extend(tokens)
            if not drafting.tokens:
                # All of the context so far is right, whatever is drafted after it.
                self.backend.mark(drafting.cursor.sequence)
        return forward

    def stop(self, request: int) -> None:
        self._expected.pop(request, None)
        cursor = self._cursors.pop(request, None)
        if cursor is not None:
            self._idle.append(cursor)
            while len(self._idle) + len(self._cursors) > self.backend.capabilities.max_sequences:
                self.backend.close(self._idle.pop(0).sequence)


def measure(backend: Backend, costs: CostCurve) -> None:
    """Learn the cost of a draft model's step, if it is not known: without that a first answer would pay for
    the reading of its whole prompt, before a step shows that drafts do not pay."""
    if costs.knows(1, 0):
        return
    sequence = backend.open()
    with suppress(LocalspecError):  # a request finds it out, and goes on without this proposer
        for at, token in enumerate(backend.vocabulary.encode("def step(self):", special=False)[:FIRST]):
            started = time.perf_counter()
            backend.forward([Span(sequence, [token], 1)]).argmax()
            costs.observe(1, at, time.perf_counter() - started)
    backend.close(sequence)


def name_accuracy(backend: Backend) -> str:
    """Return the name of what is learnt of a draft model's accuracy."""
    return f"{DraftModel.name} {backend.description}"


def certainty_of(probability: float) -> int:
    """Return the evidence of a token to which the draft model gives this probability."""
    return bisect_right(CERTAINTY, probability)
