"""One request on its way: its tokens, its text, its statistics."""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from typing import NamedTuple

from localspec.backends.base import Vocabulary
from localspec.engine.events import Event
from localspec.engine.prompt import Encoded
from localspec.engine.settings import Settings
from localspec.engine.text import TextStream
from localspec.errors import LocalspecError
from localspec.protocol.events import Degraded
from localspec.protocol.requests import Priority, Request
from localspec.protocol.results import FinishReason, Likely, ProposerStats, Stats
from localspec.speculation.draft import NOTHING, Ask, Draft, Ledger
from localspec.speculation.noise import Noise
from localspec.speculation.rewriting import NearTies, Rewriting
from localspec.speculation.sampling import Sampler
from localspec.speculation.unsure import Unsure, Urge
from localspec.speculation.verify import Judge, TargetRows, judge_for, log_probability, most_probable

NO_SLOT = -1
TARGET = "target"
WIDTH_GAIN = 0.2
"""how fast the usual width of a request's rounds follows what it drafts"""


class Likelihood(NamedTuple):
    """A token's log-probability, and the most probable tokens at its position with theirs."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Emitted(NamedTuple):
    """The tokens that a round adds to the answer.

    ``source`` proposed the first ``accepted`` of them, the target chose the others. ``likely`` has an entry
    for each token where log-probabilities are wanted, else none.
    """

    tokens: tuple[int, ...]
    accepted: int = 0
    source: str = TARGET
    likely: tuple[Likelihood, ...] = ()


class Limits(NamedTuple):
    """The engine's limits in tokens: of the context, and of this prompt in one forward."""

    n_ctx: int
    chunk: int


class Sequence:
    """A request's state.

    ``tokens`` is prompt and answer; the newest one is sampled but not fed. ``slot`` is the backend's
    sequence; the first ``cached`` tokens of the prompt were in it already, and it held ``fed`` when the
    round began: ``len(tokens) - 1``, or less where its cache cannot go back everywhere. ``exact`` and
    ``rewriting``: see :mod:`.exactness`. ``passed`` requests of a higher class got a slot while it waited;
    it is ``owed`` a step where it got its own because that were too many. It has ended, and its slot is no
    longer its own, once it is ``released``.
    """

    def __init__(
        self, id: int, encoded: Encoded, settings: Settings, vocabulary: Vocabulary, limits: Limits
    ) -> None:
        self.id = id
        self.settings = settings
        self.tokens = list(encoded.tokens)
        self.prompt_length = len(encoded.tokens)
        self.slot = NO_SLOT
        self.cached = 0
        self.exact = 0
        self.fed = 0
        self.near_ties = NearTies()
        self.rewriting: Rewriting | None = None
        self.proposer = settings.proposer
        self.source = ""
        self.priority: Priority = "chat"
        self.served = 0.0
        """seconds of the machine that it has had, as the scheduler counts them"""
        self.turn = 0.0
        """when it was served last, or began to wait"""
        self.width = 1.0
        """tokens that its rounds usually feed"""
        self.interruptions = 0
        """times that the piece of its prompt that comes next was begun for others' sake in vain"""
        self.state: bytearray | None = None
        """its cells, while others have its slot"""
        self.sure: int | None = None
        """cells that are right whatever becomes of the step under way; None between steps"""
        self.passed, self.owed, self.released = 0, False, False
        self.forgotten = False
        """whether nothing of it is to be left, neither cells nor lessons"""
        self.tidy = encoded.rule is not None
        """whether it is an editor's completion: its file teaches the memory, and what is accepted, not it"""
        self.finish: FinishReason | None = None
        self.error: LocalspecError | None = None
        self.deadline = math.inf
        """when it ends, done or not, as a time of :func:`time.monotonic`"""
        self._over = self._predict_s = math.inf
        self.events: deque[Event] = deque()
        self.stats = Stats(lossless=settings.tau is None)
        self.text = TextStream((*settings.stop, *encoded.stop), encoded.rule)
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        self.sampler = Sampler(
            settings.sampling, Noise(seed), seeded=settings.seed is not None, prompt=encoded.tokens
        )
        self._vocabulary = vocabulary
        self._end_tokens = encoded.end_tokens
        self._urge = (
            Urge(self._end_tokens, vocabulary.size)
            if encoded.unsure_ends and settings.sampling.greedy
            else None
        )
        self.emitted = 0
        self._ledger = Ledger()
        self._saved = 0.0
        self._n_ctx, self.chunk = limits
        self._submitted = time.perf_counter()
        self._first = self._last = self._submitted
        self._admitted: float | None = None

    def limit(self, request: Request) -> None:
        """From now on the request's deadlines count."""
        now = time.monotonic()
        self._over = now + _seconds(request.max_ms)
        self._predict_s = _seconds(request.max_predict_ms)
        self.deadline = min(self._over, now + _seconds(request.max_prompt_ms))

    # What a round asks.

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.error is not None

    @property
    def end_tokens(self) -> frozenset[int]:
        return self._end_tokens

    @property
    def newest(self) -> int:
        return self.tokens[-1]

    @property
    def prefilled(self) -> bool:
        """Whether the first token of the answer is known, so that rounds can begin."""
        return len(self.tokens) > self.prompt_length

    @property
    def remembered(self) -> bool:
        """Whether the memory learns it."""
        return not self.tidy and not self.forgotten and self.settings.remember and self.prefilled

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length

    def ask(self, k: int, rollback: int | None) -> Ask:
        """Of ``k`` draft tokens, how many are of use: the context, ``max_tokens``, the cache set limits."""
        k = min(k, self._n_ctx - len(self.tokens))
        if self.settings.max_tokens is not None:
            k = min(k, self.settings.max_tokens - self.completion_tokens - 1)
        if rollback is not None:
            k = min(k, rollback - 1)
        settings = self.settings
        return Ask(
            request=self.id,
            context=self.tokens,
            k=max(k, 0),
            sampler=self.sampler,
            answered=self.completion_tokens,
            left=math.inf if settings.max_tokens is None else settings.max_tokens - self.completion_tokens,
            workspace=settings.workspace,
            remember=settings.remember,
            ledger=self._ledger,
            rewriting=self.rewriting,
            missing=len(self.tokens) - 1 - self.fed,
        )

    def judge(self, rows: TargetRows, draft: Draft = NOTHING) -> Judge:
        """What decides about ``draft``, and which token comes next; row 0 follows the newest token.

        An editor's completion ends where the model is unsure, but for its first token: who asks is told
        something, also who accepted what ended so.
        """
        judge = judge_for(rows, self.sampler, draft, len(self.tokens), self.settings.tau)
        return judge if self._urge is None or not self.prefilled else Unsure(judge, self._urge)

    def emit(
        self, rows: TargetRows, tokens: tuple[int, ...], accepted: int = 0, source: str = TARGET
    ) -> Emitted:
        """``tokens``, which the first of ``rows`` decided, with log-probabilities where those are wanted."""
        if not self.settings.logprobs:
            return Emitted(tokens, accepted, source)
        most = self.settings.top_logprobs
        decided = ((rows.row(i), token) for i, token in enumerate(tokens))
        likely = (Likelihood(log_probability(row, token), most_probable(row, most)) for row, token in decided)
        return Emitted(tokens, accepted, source, tuple(likely))

    # What a round tells.

    def admitted(self) -> None:
        """It has a slot; the first time counts."""
        if self._admitted is None:
            self._admitted = time.perf_counter()

    def extend(self, emitted: Emitted) -> int:
        """Append tokens until the request ends; returns how many were used, an end token included."""
        used, likely = 0, emitted.likely
        for token in emitted.tokens:
            if self.ended:
                break
            source = emitted.source if used < emitted.accepted else TARGET
            self._append(token, source, likely[used] if likely else None)
            used += 1
        self.emitted += used
        return used

    def _append(self, token: int, source: str, likely: Likelihood | None) -> None:
        if token in self._end_tokens:
            self.finish = "stop"
            return
        self.tokens.append(token)
        self.sampler.observe(token)
        self._last = time.perf_counter()
        if self.completion_tokens == 1:
            self._first = self._last
            self.deadline = min(self._over, time.monotonic() + self._predict_s)
        piece = self._vocabulary.piece
        if likely is None:
            stopped = self.text.push(token, piece(token), source)
        else:
            top = tuple(Likely(each, piece(each), logprob) for each, logprob in likely.top)
            stopped = self.text.push(token, piece(token), source, likely.logprob, top)
        if stopped:
            self.finish = "stop_string"
        elif self.completion_tokens == self.settings.max_tokens:
            self.finish = "length"
        elif len(self.tokens) > self._n_ctx:
            self.finish = "context_full"

    def publish(self) -> None:
        """Turn the text that has become certain into an event."""
        if self.ended and self.finish != "stop_string":
            self.text.flush()
        delta = self.text.take()
        if delta is not None:
            self.events.append(delta)

    def degrade(self, to: str, reason: str) -> None:
        """The proposer failed: go on with ``to``."""
        self.events.append(Degraded(self.proposer, to, reason))
        self.proposer = to
        self.stats.speculation_off_reason = f"a proposer failed: {reason}"

    def count_time(self, plain_s: float, forward_s: float, spent_s: float) -> None:
        """A round took ``spent_s``; its forward usually takes ``forward_s``, and plain decoding would
        have taken ``plain_s`` for what came out of it."""
        won, spent = self._ledger
        self._ledger = Ledger(won + plain_s - forward_s, spent + forward_s)
        self._saved += plain_s - spent_s

    def count_round(self, draft: Draft, accepted: int, seconds: float) -> None:
        """Add one round to the statistics; ``seconds`` is the time spent proposing."""
        stats, k = self.stats, len(draft.tokens)
        self.width += WIDTH_GAIN * (k + 1 - self.width)
        stats.rounds += 1
        stats.drafted += k
        stats.accepted += accepted
        stats.k_histogram[k] = stats.k_histogram.get(k, 0) + 1
        choice = draft.source if k else draft.reason
        stats.choices[choice] = stats.choices.get(choice, 0) + 1
        share = stats.proposers.setdefault(draft.source, ProposerStats())
        share.drafted += k
        share.accepted += accepted
        share.seconds += seconds

    def final_stats(self, *, priced: bool) -> Stats:
        """The statistics, with what can only be said at the end; ``priced``: a plain step's cost is known."""
        stats, n = self.stats, self.completion_tokens
        stats.time_saved_s = self._saved if priced and stats.rounds else None
        stats.acceptance_rate = stats.accepted / stats.drafted if stats.drafted else None
        # The first token comes from the prefill, all others from rounds.
        stats.tokens_per_round = (self.emitted - 1) / stats.rounds if stats.rounds else None
        until = time.perf_counter() if self._admitted is None else self._admitted
        stats.queued_s = until - self._submitted
        if n:
            stats.ttft_s = self._first - self._submitted
        if n > 1 and self._last > self._first:
            stats.decode_tokens_per_s = (n - 1) / (self._last - self._first)
        if not stats.drafted and stats.speculation_off_reason is None and stats.choices:
            stats.speculation_off_reason = max(stats.choices, key=lambda reason: stats.choices[reason])
        return stats


def _seconds(ms: int | None) -> float:
    return math.inf if ms is None else ms / 1000
