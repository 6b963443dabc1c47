"""The state of one request: its tokens, its text, its statistics."""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from typing import Literal, NamedTuple

from localspec.backends.base import Vocabulary
from localspec.engine.events import Event
from localspec.engine.prompt import Encoded
from localspec.engine.settings import Settings
from localspec.engine.text import TextStream
from localspec.errors import LocalspecError
from localspec.protocol.events import Degraded
from localspec.protocol.requests import Priority, Request
from localspec.protocol.results import FinishReason, Likely, ProposerStats, Stats
from localspec.speculation.draft import NOTHING, Ask, Draft, Savings
from localspec.speculation.early_end import EarlyEnd, EndScore
from localspec.speculation.noise import Noise
from localspec.speculation.sampling import Sampler
from localspec.speculation.verify import TargetRows, judge_for, log_probability, most_probable, verify

NO_SLOT = -1
TARGET = "target"
NOISE = 0.02
"""share of a round's time that says nothing of drafts: on a busy machine plain rounds differ by more"""
WIDTH_GAIN = 0.2
"""share of a round's width that goes into the usual width of a request's rounds"""


class Likelihood(NamedTuple):
    """A token's log-probability, and the most probable tokens at its position with their own."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Emitted(NamedTuple):
    """The tokens that a round adds to the answer.

    ``source`` proposed the first ``accepted`` of them, the target chose the others. ``likely`` has an entry
    for each token if the request has ``logprobs``, else none.
    """

    tokens: tuple[int, ...]
    accepted: int = 0
    source: str = TARGET
    likely: tuple[Likelihood, ...] = ()


class Limits(NamedTuple):
    """The engine's limits in tokens: of the context, and of a piece of this prompt."""

    n_ctx: int
    chunk: int


class Sequence:
    """A request's state.

    ``tokens`` is prompt and answer; the newest one is chosen but not fed. ``slot`` is the backend's
    sequence. It held the first ``cached`` tokens of the prompt from the start, and ``fed`` tokens
    when the round began: ``len(tokens) - 1``, or fewer if its cache cannot go back to every length.
    ``exact`` and ``canonical``: see :mod:`.exactness`. ``passed`` counts the requests of higher classes that
    got a slot while it waited. If that reached the limit, it got the next slot and ``owed`` is True until it
    is served.
    """

    reports: Literal["long prompts", "next step", "all"] = "long prompts"
    """of which prompts progress is reported; ``next step``: of this one, before anything is read"""

    def __init__(
        self, id: int, encoded: Encoded, settings: Settings, vocabulary: Vocabulary, limits: Limits
    ) -> None:
        self.id = id
        self.settings = settings
        self.tokens = list(encoded.tokens)
        self.prompt_length = len(encoded.tokens)
        self.slot = NO_SLOT
        self.cached = 0
        self.exact = self.canonical = self.fed = 0
        self.proposer = settings.proposer
        self.draft: int | None = None
        """the number of its draft model in the engine"""
        self.source = ""
        self.priority: Priority = "chat"
        self.served = 0.0
        """seconds of machine time so far, as the scheduler counts them"""
        self.turn = 0.0
        """time of its last step, or of its submission, by :func:`time.monotonic`"""
        self.width = 1.0
        """tokens that its rounds usually feed"""
        self.interruptions = 0
        """times that the next piece of its prompt was preempted"""
        self.state: bytearray | None = None
        """its saved cells, while another request has its slot"""
        self.passed, self.owed = 0, False
        self.forgotten = False
        """True if neither its cells are to be kept nor its text learnt"""
        self.tidy = encoded.rule is not None
        """True for an editor's completion: the memory learns the file and accepted texts, not this one"""
        self.finish: FinishReason | None = None
        self.error: LocalspecError | None = None
        self.deadline = math.inf
        """time at which it ends in any case, by :func:`time.monotonic`"""
        self._over = self._predict_s = math.inf
        self.events: deque[Event] = deque()
        self.stats = Stats(lossless=settings.tau is None)
        self.text = TextStream((*settings.stop, *encoded.stop), encoded.rule)
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        self.sampler = Sampler(
            settings.sampling, Noise(seed), seeded=settings.seed is not None, prompt=encoded.tokens
        )
        self._vocabulary = vocabulary
        self.end_tokens = encoded.end_tokens
        self._end_score = (
            EndScore(self.end_tokens, vocabulary.size)
            if encoded.early_end and settings.sampling.greedy
            else None
        )
        self.emitted = 0
        self._savings = Savings()
        self._saved = self._noise = 0.0
        self._n_ctx, self.chunk = limits
        self._submitted = time.perf_counter()
        self._first = self._last = self._submitted
        self._admitted: float | None = None

    def limit(self, request: Request) -> None:
        """Start the request's deadlines now."""
        now = time.monotonic()
        self._over = now + _seconds(request.max_ms)
        self._predict_s = _seconds(request.max_predict_ms)
        self.deadline = min(self._over, now + _seconds(request.max_prompt_ms))

    # Read by a round.

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.error is not None

    @property
    def newest(self) -> int:
        return self.tokens[-1]

    @property
    def prefilled(self) -> bool:
        """True if the first token of the answer is known, so that rounds can begin."""
        return len(self.tokens) > self.prompt_length

    @property
    def remembered(self) -> bool:
        """True if the n-gram memory is to learn it."""
        return not self.tidy and not self.forgotten and self.settings.remember and self.prefilled

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length

    def ask(self, k: int, rollback: int | None) -> Ask:
        """Return the ask for a draft of ``k`` tokens, or of as many as the context, ``max_tokens`` and
        ``rollback`` allow."""
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
            savings=self._savings,
            missing=len(self.tokens) - 1 - self.fed,
        )

    def choose(self, rows: TargetRows, draft: Draft = NOTHING) -> Emitted:
        """Return the accepted tokens of ``draft`` and the target's own after them, with log-probabilities if
        requested; row 0 follows the newest token.

        An editor's completion ends where the model is unsure, but never before its first token: so a request
        gets some text, even the one that follows an accepted completion that ended this way.
        """
        judge = judge_for(rows, self.sampler, draft, len(self.tokens), self.settings.tau)
        if self._end_score is not None and self.prefilled:
            judge = EarlyEnd(judge, self._end_score)
        tokens, accepted = verify(draft.tokens, judge, end_tokens=self.end_tokens)
        if not self.settings.logprobs:
            return Emitted(tokens, accepted, draft.source)
        most = self.settings.top_logprobs
        decided = ((rows.row(i), token) for i, token in enumerate(tokens))
        likely = (Likelihood(log_probability(row, token), most_probable(row, most)) for row, token in decided)
        return Emitted(tokens, accepted, draft.source, tuple(likely))

    # Updated by a forward.

    def wrote(self, start: int, end: int, *, exact: bool) -> None:
        """Note that cells ``start`` to ``end`` were written; ``exact``: as plain decoding would, if those
        before them are exact."""
        if min(start, end) < self.exact:
            self.kept(min(start, end))
        if exact and self.exact == start:
            self.exact = end

    def kept(self, length: int) -> None:
        """Note that only the first ``length`` cells are left."""
        self.exact, self.canonical = min(self.exact, length), min(self.canonical, length)

    def admitted(self) -> None:
        """Note the time at which it got a slot for the first time."""
        if self._admitted is None:
            self._admitted = time.perf_counter()

    def extend(self, emitted: Emitted, *, exact: bool) -> int:
        """Append tokens until the request ends; return how many were used, an end token included. ``exact``:
        plain decoding chooses them, too, to the bit of every row."""
        used, likely, before = 0, emitted.likely, len(self.tokens)
        for token in emitted.tokens:
            if self.finish is not None:
                break
            source = emitted.source if used < emitted.accepted else TARGET
            self._append(token, source, likely[used] if likely else None)
            used += 1
        self.emitted += used
        if not exact:
            self.stats.rounded_tokens += len(self.tokens) - before
        return used

    def _append(self, token: int, source: str, likely: Likelihood | None) -> None:
        if token in self.end_tokens:
            self.finish = "stop"
            return
        self.tokens.append(token)
        if self.settings.sampling.penalises:
            self.sampler.observe(token)
        self._last, answered = time.perf_counter(), len(self.tokens) - self.prompt_length
        if answered == 1:
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
        elif answered == self.settings.max_tokens:
            self.finish = "length"
        elif len(self.tokens) > self._n_ctx:
            self.finish = "context_full"

    def publish(self) -> None:
        """Append an event with the text that has become certain, if any."""
        if self.finish != "stop_string" and self.ended:
            self.text.flush()
        delta = self.text.take()
        if delta is not None:
            self.events.append(delta)

    def degrade(self, to: str, reason: str) -> None:
        """Replace the proposer, which failed for ``reason``, by ``to``."""
        self.events.append(Degraded(self.proposer, to, reason))
        self.proposer = to
        self.stats.speculation_off_reason = f"a proposer failed: {reason}"

    def count_time(self, plain_s: float, forward_s: float, spent_s: float, noise_s: float) -> None:
        """Count a round that took ``spent_s``. Its forward usually takes ``forward_s``, this time ``noise_s``
        more or less, and plain decoding would have taken ``plain_s`` for the tokens it gave."""
        won, spent = self._savings
        self._savings = Savings(won + plain_s - forward_s, spent + forward_s)
        self._saved += plain_s - spent_s
        self._noise += noise_s + NOISE * spent_s

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
        """Return the statistics with the values known only at the end; ``priced``: a plain step's cost is
        known."""
        stats, n = self.stats, self.completion_tokens
        is_clear = priced and stats.rounds and abs(self._saved) >= self._noise
        stats.time_saved_s = self._saved if is_clear else None
        stats.acceptance_rate = stats.accepted / stats.drafted if stats.drafted else None
        if self.settings.reproducible:
            stats.exactness = "near-ties" if stats.rounded_tokens else "exact"
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
