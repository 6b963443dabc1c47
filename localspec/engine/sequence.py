"""The state of one request: its settings, its tokens and cells, its text, its statistics, its exactness.

The settings are the concrete values that it runs with, from its options. The text comes from the bytes of
tokens: whole code points, without stop strings. The statistics are of its rounds, its times, and what its
drafts have saved. Exactness is a matter of rows and cells: those that equal, to the bit, those of plain
decoding.

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

import codecs
import math
import secrets
import time
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from localspec.backends.base import ANY_WIDTH, WIDTHS, Backend, Capabilities, Span, Vocabulary
from localspec.completion.stopping import StopRule
from localspec.engine.channels import Channels
from localspec.engine.prompt import Encoded
from localspec.errors import LocalspecError
from localspec.home import workspace_of_file
from localspec.protocol.options import GRAMMAR, NONE, Options
from localspec.protocol.requests import (
    Degraded,
    Delta,
    FimPrompt,
    FinishReason,
    Likely,
    Progress,
    Prompt,
    ProposerStats,
    Request,
    Result,
    Round,
    Stats,
    Token,
)
from localspec.speculation.noise import Noise
from localspec.speculation.proposer import NOTHING, Ask, Draft, Savings, shared_length
from localspec.speculation.sampling import COLD, Sampler, SamplingParams
from localspec.speculation.verify import (
    EarlyEnd,
    EndScore,
    TargetRows,
    judge_for,
    log_probability,
    most_probable,
    verify,
)
from localspec.tools.families import Form, undecided
from localspec.tools.parser import Parser, Piece

DEFAULT_TAU = 0.3
CHAT_TEMPERATURE = 0.7
FIM_TOKENS = 256
"""default of ``max_tokens`` in a gap: a model that misses its end must not fill the whole context"""


@dataclass(frozen=True, slots=True)
class Settings:
    """One request's concrete settings.

    ``tau`` is set if drafts are verified by a threshold, ``k`` if the request sets the draft length.
    ``reproducible``: the same text is expected again; ``strict``: to the byte. ``cut``: a chat longer than
    the context drops its oldest turns. ``drafts``: the engine's draft model may draft for it.
    """

    sampling: SamplingParams
    proposer: str
    k: int | None
    tau: float | None
    reproducible: bool
    strict: bool
    seed: int | None
    stop: tuple[str, ...]
    max_tokens: int | None
    logprobs: bool
    top_logprobs: int
    cut: bool
    workspace: str | None
    remember: bool
    drafts: bool = True


def settle(options: Options, prompt: Prompt, model_defaults: Options) -> Settings:
    """Return the settings of ``options``, completed by the model's own and by the documented defaults."""
    merged = options.over(model_defaults)
    fim = isinstance(prompt, FimPrompt)
    # The temperature that a model's author recommends is for chat; by default a gap is filled greedily.
    temperature = options.temperature if fim else merged.temperature
    if temperature is None:
        temperature = 0.0 if fim else CHAT_TEMPERATURE
    workspace = merged.workspace
    if workspace is None and isinstance(prompt, FimPrompt) and prompt.tidy:
        workspace = workspace_of_file(prompt.path)
    lossy = merged.verify == "threshold"
    reproducible = (temperature < COLD or merged.seed is not None) and not lossy
    return Settings(
        sampling=SamplingParams(
            temperature=temperature,
            top_k=merged.top_k or 0,
            top_p=1.0 if merged.top_p is None else merged.top_p,
            min_p=merged.min_p or 0.0,
            repeat_penalty=1.0 if merged.repeat_penalty is None else merged.repeat_penalty,
            frequency_penalty=merged.frequency_penalty or 0.0,
            presence_penalty=merged.presence_penalty or 0.0,
            repeat_last_n=merged.repeat_last_n,
            logit_bias=merged.logit_bias or (),
        ),
        proposer=merged.proposer or "auto",
        k=merged.k,
        tau=(merged.threshold or DEFAULT_TAU) if lossy else None,
        reproducible=reproducible,
        strict=reproducible and merged.exactness == "strict",
        seed=merged.seed,
        stop=merged.stop or (),
        max_tokens=FIM_TOKENS if fim and merged.max_tokens is None else merged.max_tokens,
        logprobs=bool(merged.logprobs),
        top_logprobs=merged.top_logprobs or 0 if merged.logprobs else 0,
        cut=merged.overflow != "refuse",
        workspace=workspace or None,
        remember=merged.remember is not False,
        drafts=merged.draft != "none",
    )


NOISE = 0.02
"""share of a round's time that says nothing of drafts: on a busy machine plain rounds differ by more"""
WIDTH_GAIN = 0.2
"""share of a round's width that goes into the usual width of a request's rounds"""


class Account:
    """Counts a request's rounds and times from its submission on; :meth:`close` completes ``stats``."""

    def __init__(self, stats: Stats, *, reproducible: bool) -> None:
        self.stats, self._reproducible = stats, reproducible
        self.savings = Savings()
        self.width = 1.0
        """tokens that its rounds usually feed"""
        self._emitted = 0
        self._saved = self._noise = 0.0
        self._submitted = self.first = self.last = time.perf_counter()
        """times of the first and of the last token"""
        self.admitted: float | None = None
        """time at which the request got a slot for the first time"""

    def count_round(self, draft: Draft, accepted: int, emitted: int, seconds: float) -> None:
        """Add one round; ``seconds`` is the time spent proposing."""
        stats, k = self.stats, len(draft.tokens)
        self.width += WIDTH_GAIN * (k + 1 - self.width)
        self._emitted += emitted
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

    def count_forced(self, tokens: int) -> None:
        """Add tokens that the grammar forced: no draft was verified for them."""
        share = self.stats.proposers.setdefault(GRAMMAR.name, ProposerStats())
        share.drafted += tokens
        share.accepted += tokens

    def count_time(
        self, won_s: float, forward_s: float, plain_s: float, spent_s: float, noise_s: float
    ) -> None:
        """Count a round that took ``spent_s``. Its forward usually takes ``forward_s``, this time ``noise_s``
        more or less; its draft saves ``won_s`` of forwards, and plain decoding would have taken ``plain_s``
        for the tokens it gave."""
        won, spent = self.savings
        self.savings = Savings(won + won_s, spent + forward_s)
        self._saved += plain_s - spent_s
        self._noise += noise_s + NOISE * spent_s

    def close(self, n: int, *, priced: bool) -> Stats:
        """Return the statistics of an answer of ``n`` tokens; ``priced``: a plain step's cost is known."""
        stats = self.stats
        is_clear = priced and stats.rounds and abs(self._saved) >= self._noise
        stats.time_saved_s = self._saved if is_clear else None
        stats.acceptance_rate = stats.accepted / stats.drafted if stats.drafted else None
        if self._reproducible:
            stats.exactness = "near-ties" if stats.rounded_tokens else "exact"
        stats.tokens_per_round = self._emitted / stats.rounds if stats.rounds else None
        until = time.perf_counter() if self.admitted is None else self.admitted
        stats.queued_s = until - self._submitted
        if n:
            stats.ttft_s = self.first - self._submitted
        if n > 1 and self.last > self.first:
            stats.decode_tokens_per_s = (n - 1) / (self.last - self.first)
        if not stats.drafted and stats.speculation_off_reason is None and stats.choices:
            stats.speculation_off_reason = max(stats.choices, key=lambda reason: stats.choices[reason])
        return stats


class TextStream:
    """Takes tokens with :meth:`push`, returns the text that is certain with :meth:`take`.

    A token's text is held back while the end of the text could still become a stop string; the
    bytes of an unfinished character wait for the token that ends it, and are dropped at the end.
    With a ``rule`` all text is held back until the rule or :meth:`flush` ends it. In a text of a ``form``
    stop strings hold for the answer alone, not for thoughts, calls and markup.
    """

    def __init__(self, stop: Seq[str] = (), rule: StopRule | None = None, form: Form | None = None) -> None:
        self._stop, self._rule = tuple(stop), rule
        self._parser = Parser(form) if form is not None and self._stop else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[Token] = []
        self._held_texts: list[str] = []
        """the text of each token that is held back"""
        self._tail = ""
        """the part of these texts that is searched for stop strings: what is certain to be of one channel"""
        self._ready: list[Token] = []
        self._ready_text = ""
        self.text = ""
        """all text taken so far"""
        self.stop: str | None = None
        """the stop string that ended the text; None if none did"""

    def push(
        self, token: int, piece: bytes, source: str, logprob: float | None = None, top: Seq[Likely] = ()
    ) -> bool:
        """Add a token; return True if it completed a stop string, or an end by the rule: the text ends
        before that."""
        text = self._decoder.decode(piece)
        made = Token(token, source, len(text), logprob, tuple(top))
        if not self._stop and self._rule is None:
            self._ready.append(made)
            self._ready_text += text
            return False
        self._held.append(made)
        self._held_texts.append(text)
        self._tail += text if self._parser is None else _searchable(self._parser.feed(text))
        end = self._end(text)
        if end is not None:
            self._cut(end)
            return True
        if self._rule is None:
            self._release_certain()
        return False

    def _end(self, new: str) -> int | None:
        """Return the number of held characters to keep if the newest ones, ``new``, end the text; None if
        they do not."""
        ruled = None if self._rule is None else self._rule.feed(new)
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := self._tail.find(stop)) >= 0]
        if not found:
            return ruled
        # The stop string that was completed first, so that the text does not depend on token borders.
        _, at, stop = min(found)
        if ruled is not None and ruled < at:
            return ruled
        self.stop = stop
        return at

    def _release_certain(self) -> None:
        """Release the tokens in which no stop string can begin any more."""
        safe, n, length = len(self._tail) - undecided(self._tail, self._stop), 0, 0
        while n < len(self._held) and length + self._held[n].chars <= safe:
            length += self._held[n].chars
            n += 1
        self._release(n)

    def _cut(self, length: int) -> None:
        """Release ``length`` of the held characters and drop the rest."""
        n = 0
        while length > 0 and n < len(self._held):
            held, text = self._held[n], self._held_texts[n][:length]
            self._held[n], self._held_texts[n] = replace(held, chars=len(text)), text
            length -= held.chars
            n += 1
        del self._held[n:], self._held_texts[n:]
        self._release(n)

    def _release(self, n: int) -> None:
        self._ready += self._held[:n]
        text = "".join(self._held_texts[:n])
        self._ready_text, self._tail = self._ready_text + text, self._tail[len(text) :]
        del self._held[:n], self._held_texts[:n]

    def flush(self, *, cut: bool = False) -> bool:
        """Release all held text, because it has ended, ``cut`` or by itself; return True if a stop string in
        what was not certain before ends it."""
        if self._parser is not None:
            self._tail += _searchable(self._parser.finish(cut=cut))
            if (end := self._end("")) is not None:
                self._cut(end)
                return True
        self._release(len(self._held))
        return False

    def take(self) -> Delta | None:
        """Return the text that has become certain since the last call; None if there is none."""
        if not self._ready:
            return None
        delta = Delta(self._ready_text, tuple(self._ready))
        self._ready, self._ready_text = [], ""
        self.text += delta.text
        return delta


def _searchable(pieces: Iterable[Piece]) -> str:
    """The text of ``pieces``, with half of a surrogate pair for each character that is not of the answer."""
    return "".join(p.text if p.channel == "answer" else "\ud800" * p.source for p in pieces)


NO_SLOT = -1
TARGET = "target"

Event = Delta | Progress | Degraded | Round | Result | LocalspecError
"""an event of a running request; the last one is a Result or a LocalspecError"""


Likelihood = tuple[float, tuple[tuple[int, float], ...]]
"""a token's log-probability, and the most probable tokens at its position with their own"""


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
    ``whole`` tokens of the prompt are in whole pieces before the last one: a backend may compute the cells
    beside a row differently. ``exact`` and ``canonical``: see above. ``passed`` counts the
    requests of higher classes that got a slot while it waited. If that reached the limit, it got the next
    slot and ``owed`` is True until it is served.
    """

    reports: Literal["long prompts", "next step", "all"] = "long prompts"
    """of which prompts progress is reported; ``next step``: of this one, before anything is read"""

    def __init__(
        self,
        id: int,
        request: Request,
        settings: Settings,
        encoded: Encoded,
        vocabulary: Vocabulary,
        limits: Limits,
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
        self.passed, self.owed = 0, False
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
        self.watched = False
        """True if the rounds are among its events"""
        if request.progress:
            self.reports = "next step"
        self.events: deque[Event] = deque()
        self.stats = Stats(
            lossless=settings.tau is None,
            truncated_messages=encoded.dropped,
            untemplated=encoded.untemplated,
        )
        self.account = Account(self.stats, reproducible=settings.reproducible)
        marked, self.constraint = encoded.marked, encoded.constraint
        self.text = TextStream((*settings.stop, *encoded.stop), encoded.rule, marked and marked.form)
        self.channels = Channels(marked) if marked else None
        self._piece = marked.named(vocabulary.piece) if marked else vocabulary.piece
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

    # Cells.

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

    # Tokens.

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

    def forced(self) -> list[int]:
        """Return the tokens that the grammar forces next, as many as the answer may have. None in plain
        decoding, nor where each token's row is needed."""
        settings = self.settings
        if self.constraint is None or self.ended or settings.logprobs or settings.proposer == NONE:
            return []
        left = self._n_ctx - len(self.tokens)
        if settings.max_tokens is not None:
            left = min(left, settings.max_tokens - self.completion_tokens)
        return self.constraint.forced(left)

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

    # Events.

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
    """Return the number of the sequence's tokens that can be taken over, at most ``most``.

    The last token is always fed: its row gives the answer's first one. A strict request takes only cells
    that it would have written itself.
    """
    shared = min(shared_length(holder.tokens, sequence.tokens[:-1]), most)
    return canonical_cells(holder, shared, sequence) if sequence.settings.strict else shared


def canonical_cells(holder: Holder, length: int, sequence: Sequence) -> int:
    """Return how many of the first ``length`` cells are those of whole pieces of the sequence's prompt."""
    return min(length, holder.canonical) // sequence.chunk * sequence.chunk
