"""The state of one request: its tokens and cells, and their exactness.

Exactness is a matter of rows and cells: those that equal, to the bit, those of plain decoding.

Plain decoding reads the prompt in pieces of ``prefill_chunk`` tokens, then one token at a time, alone; where
the backend is ``fast_alone``, ``strict`` requests have another plain decoding than the others. A forward of
several tokens may round differently, so that the two best tokens of a near-tie can swap, and the cells that
it wrote move later rows. Up to some width most backends round as for one token
(:mod:`localspec.backends.base`).

``Sequence.exact`` counts the leading cells that plain decoding would have written, ``canonical`` those among
them of whole pieces, which any prompt that begins with these tokens has. A ``strict`` request plays only
rounds whose rows are equal, and takes over only canonical cells. Any other request drafts at full width and
takes over all cells; its statistics count the tokens that were not chosen from equal rows over exact cells.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from collections.abc import Sequence as Seq
from typing import Literal, NamedTuple, Protocol

from localspec.backends.base import ANY_WIDTH, WIDTHS, Backend, Capabilities, ModelVocabulary, Span
from localspec.engine.account import Account
from localspec.engine.prompt import Encoded
from localspec.engine.settings import RequestSettings
from localspec.engine.textstream import Channels, TextStream
from localspec.errors import LocalspecError
from localspec.protocol.options import GRAMMAR, NONE
from localspec.protocol.requests import (
    Degraded,
    Delta,
    FinishReason,
    Likely,
    Progress,
    Request,
    Result,
    Stats,
)
from localspec.speculation.noise import Noise
from localspec.speculation.proposer import NOTHING, Ask, Draft, shared_length
from localspec.speculation.sampling import Sampler
from localspec.speculation.verify import (
    EarlyEnd,
    EndScore,
    TargetRows,
    judge_for,
    log_probability,
    most_probable,
    verify,
)

NO_SLOT = -1
TARGET = "target"

Event = Delta | Progress | Degraded | Result | LocalspecError
"""an event of a running request; the last one is a Result or a LocalspecError"""

Likelihood = tuple[float, tuple[tuple[int, float], ...]]
"""a token's log-probability, and the most probable tokens at its position with their own"""


class Emitted(NamedTuple):
    """The tokens that a round adds to the answer. ``source`` proposed the first ``accepted`` of them, the
    target chose the others. ``likely`` has an entry for each token if the request has ``logprobs``, else
    none."""

    tokens: tuple[int, ...]
    accepted: int = 0
    source: str = TARGET
    likely: tuple[Likelihood, ...] = ()


class SequenceLimits(NamedTuple):
    """The engine's limits in tokens: of the context, and of a piece of this prompt."""

    n_ctx: int
    chunk: int


class Sequence:
    """A request's state.

    ``tokens`` is prompt and answer; the newest one is chosen but not fed. ``slot`` is the backend's sequence.
    It held the first ``cached`` tokens of the prompt from the start, and ``fed`` tokens when the round began:
    ``len(tokens) - 1``, or fewer if its cache cannot go back to every length. ``whole`` tokens of the prompt
    are in whole pieces before the last one: a backend may compute the cells beside a row differently.
    ``exact`` and ``canonical``: see above. ``passed`` counts the requests of higher classes that got a slot
    since it was last served: at a limit it gets the next slot, and the next step."""

    reports: Literal["long prompts", "next step", "all"] = "long prompts"
    """of which prompts progress is reported; ``next step``: of this one, before anything is read"""

    def __init__(
        self,
        id: int,
        request: Request,
        settings: RequestSettings,
        encoded: Encoded,
        vocabulary: ModelVocabulary,
        limits: SequenceLimits,
    ) -> None:
        self.id, self.settings, self.source = id, settings, request.source
        self.tokens, self.prompt_length = list(encoded.tokens), len(encoded.tokens)
        self.end_tokens, self.earlier = encoded.end_tokens, encoded.earlier
        self._n_ctx, self.chunk = limits
        self.whole = (self.prompt_length - 1) // self.chunk * self.chunk
        self.slot = NO_SLOT
        self.cached = self.exact = self.fed = 0
        self.proposer = settings.proposer
        self.draft: int | None = None
        """the number of its draft model in the engine"""
        self.priority = request.goes_as
        self.served = 0.0
        """seconds of machine time so far, as the scheduler counts them"""
        now = self.turn = time.monotonic()
        """time of its last step, or of its submission, by :func:`time.monotonic`"""
        self.interruptions = 0
        """times that the next piece of its prompt was preempted"""
        self.state: bytearray | None = None
        """its saved cells, while another request has its slot"""
        self.passed = 0
        self.forgotten = False
        """True if neither its cells are to be kept nor its text learnt"""
        self.tidy = encoded.rule is not None
        """True for an editor's completion: the memory learns the file and accepted texts, not this one"""
        self.finish: FinishReason | None = None
        self.error: LocalspecError | None = None
        limits_ms = request.max_ms, request.max_prompt_ms, request.max_predict_ms
        total, prompt, self._predict_s = (math.inf if ms is None else ms / 1000 for ms in limits_ms)
        self._over = now + total
        self.deadline = min(self._over, now + prompt)
        """time at which it ends in any case, by :func:`time.monotonic`"""
        if request.progress:
            self.reports = "next step"
        self.events: deque[Event] = deque()
        self.stats = Stats(
            truncated_messages=encoded.dropped,
            untemplated=encoded.untemplated,
        )
        self.account = Account(self.stats, reproducible=settings.reproducible)
        marked, self.constraint = encoded.marked, encoded.constraint
        self.text = TextStream((*settings.stop, *encoded.stop), encoded.rule, marked and marked.form)
        self.channels = Channels(marked) if marked else None
        self._piece = marked.name_pieces(vocabulary.piece) if marked else vocabulary.piece
        noise = Noise(secrets.randbits(63) if settings.seed is None else settings.seed)
        seeded, context, mask = settings.seed is not None, encoded.tokens, self.constraint
        self.sampler = Sampler(settings.sampling, noise, seeded=seeded, prompt=context, mask=mask)
        ends_early = encoded.early_end and settings.sampling.greedy and mask is None
        self._end_score = EndScore(self.end_tokens, vocabulary.size) if ends_early else None

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.error is not None

    @property
    def prefilled(self) -> bool:
        """True if the first token of the answer is known, so that rounds can begin."""
        return len(self.tokens) > self.prompt_length

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def canonical(self) -> int:
        return min(self.exact, self.whole)

    def take(self, slot: int, cached: int, canonical: int) -> None:
        """Start in ``slot``, which holds ``cached`` tokens of the prompt, ``canonical`` ones among them."""
        self.slot, self.cached, self.exact = slot, cached, canonical
        self.account.admitted = time.perf_counter()

    def wrote(self, start: int, end: int, *, exact: bool) -> None:
        """Note that cells ``start`` to ``end`` were written, or that only the first ``end`` are left;
        ``exact``: as plain decoding would, if those before them are exact."""
        self.exact = min(self.exact, start, end)
        if exact and self.exact == start:
            self.exact = end

    def ask(self, k: int, rollback: int | None) -> Ask:
        """Return the ask for a draft of ``k`` tokens, or of as many as the context, ``max_tokens`` and
        ``rollback`` allow."""
        settings, answered = self.settings, self.completion_tokens
        left = math.inf if settings.max_tokens is None else settings.max_tokens - answered
        rolls_back = math.inf if rollback is None else rollback - 1
        most = min(k, self._n_ctx - len(self.tokens), left - 1, rolls_back)
        return Ask(
            request=self.id,
            context=self.tokens,
            k=max(0, int(most)),
            sampler=self.sampler,
            answered=answered,
            left=left,
            workspace=settings.workspace,
            remember=settings.remember,
            savings=self.account.savings,
            missing=len(self.tokens) - 1 - self.fed,
        )

    def choose(self, rows: TargetRows, draft: Draft = NOTHING) -> Emitted:
        """Return the accepted tokens of ``draft`` and the target's own after them, with log-probabilities if
        requested; row 0 follows the newest token. An editor's completion ends where the model is unsure, but
        never before its first token: so a request gets some text, even the one that follows an accepted
        completion that ended this way."""
        judge = judge_for(rows, self.sampler, draft, len(self.tokens))
        if self._end_score is not None and self.prefilled:
            judge = EarlyEnd(judge, self._end_score)
        tokens, accepted = verify(draft.tokens, judge, end_tokens=self.end_tokens)
        if not self.settings.logprobs:
            return Emitted(tokens, accepted, draft.source)
        most = self.settings.top_logprobs
        decided = ((rows.row(i), token) for i, token in enumerate(tokens))
        likely = ((log_probability(row, token), most_probable(row, most)) for row, token in decided)
        return Emitted(tokens, accepted, draft.source, tuple(likely))

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
        if len(self.tokens) > before:
            self.account.last = time.perf_counter()
            if before == self.prompt_length:
                self.account.first = self.account.last
                self.deadline = min(self._over, time.monotonic() + self._predict_s)
        if not exact:
            self.stats.rounded_tokens += len(self.tokens) - before
        return used

    def find_forced(self) -> list[int]:
        """Return the tokens that the grammar forces next, as many as the answer may have. None in plain
        decoding, nor where each token's row is needed."""
        settings = self.settings
        if self.constraint is None or self.ended or settings.logprobs or settings.proposer == NONE:
            return []
        left = self._n_ctx - len(self.tokens)
        if settings.max_tokens is not None:
            left = min(left, settings.max_tokens - self.completion_tokens)
        return self.constraint.find_forced(left)

    def force(self, tokens: Seq[int]) -> int:
        """Append forced tokens, which need no row; return how many were used."""
        used = self.extend(Emitted(tuple(tokens), len(tokens), GRAMMAR.name), exact=True)
        if used:
            self.account.count_forced(used)
        return used

    def _append(self, token: int, source: str, likely: Likelihood | None) -> None:
        if token in self.end_tokens:
            self.finish = "stop"
            return
        self.tokens.append(token)
        if self.settings.sampling.penalises:
            self.sampler.observe(token)
        if self.constraint is not None:
            self.constraint.accept(token)
        logprob, top = (None, ()) if likely is None else likely
        others = tuple(Likely(each, self._piece(each), value) for each, value in top) if top else ()
        if self.text.push(token, self._piece(token), source, logprob, others):
            self.finish = "stop_string"
        elif self.constraint is not None and self.constraint.ended:
            self.finish = "stop"
        elif len(self.tokens) - self.prompt_length == self.settings.max_tokens:
            self.finish = "length"
        elif len(self.tokens) > self._n_ctx:
            self.finish = "context_full"

    def publish(self) -> None:
        """Append an event with the text that has become certain, if any."""
        cut = self.finish not in ("stop", "stop_string")
        if self.finish != "stop_string" and self.ended and self.text.flush(cut=cut):
            self.finish, cut = "stop_string", False
        delta = self.text.take()
        if self.channels is not None:
            self.events.extend(self.channels.split(delta, ended=self.ended, cut=cut))
            if self.channels.parser.full and not self.ended:
                self.finish = "stop"
                self.events.extend(self.channels.split(None, ended=True))
        elif delta is not None:
            self.events.append(delta)

    def degrade(self, to: str, reason: str) -> None:
        """Replace the proposer, which failed for ``reason``, by ``to``."""
        self.events.append(Degraded(self.proposer, to, reason))
        self.proposer = to
        self.stats.speculation_off_reason = f"a proposer failed: {reason}"


class Holder(Protocol):
    """A holder of cells: a running request, or the cache of an ended one."""

    slot: int
    tokens: list[int]
    source: str

    @property
    def canonical(self) -> int: ...


def width_of(capabilities: Capabilities, spans: Seq[Span]) -> int:
    """Return the number of tokens that a forward computes, padding included."""
    if len(spans) == 1:
        return len(spans[0].tokens)
    widths = [len(span.tokens) for span in spans]
    return max(widths) * len(widths) if capabilities.batches else sum(widths)


def keeps_rows(capabilities: Capabilities, width: int, sequences: int = 1, *, strict: bool) -> bool:
    """Return True if the rows of a forward equal those of 1-wide forwards of each sequence alone, for spans
    that are exact if ``strict``."""
    widest = 1 if capabilities.fast_alone and not strict else capabilities.exact_width
    return width <= widest and (sequences == 1 or capabilities.exact_batches)


def widest_round(target: Backend, sequence: Sequence) -> int:
    """Return the most tokens that a round of the sequence may feed: those of equal rows if it is strict, or
    if that costs it next to nothing, because all widths that were tried have equal rows."""
    widest, settings = target.capabilities.exact_width, sequence.settings
    return widest if settings.strict or settings.reproducible and widest >= WIDTHS[-1] else ANY_WIDTH


def usable(holder: Holder, sequence: Sequence, most: int = ANY_WIDTH) -> int:
    """Return the number of the sequence's tokens that can be taken over, at most ``most``. The last token is
    always fed: its row gives the answer's first one. A strict request takes only cells that it would have
    written itself."""
    shared = min(shared_length(holder.tokens, sequence.tokens[:-1]), most)
    return canonical_cells(holder, shared, sequence) if sequence.settings.strict else shared


def canonical_cells(holder: Holder, length: int, sequence: Sequence) -> int:
    """Return how many of the first ``length`` cells are those of whole pieces of the sequence's prompt."""
    return min(length, holder.canonical) // sequence.chunk * sequence.chunk
