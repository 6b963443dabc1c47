"""One round of speculative decoding, for a batch of sequences: the decode loop.

propose → forward → verify → accept → roll back → emit. The target's cache holds every token but the newest,
``g``. The forward appends ``[g, t1 … tk]`` to it. After the verification each sequence is extended by the
accepted draft tokens and the target's own token, and its cache is truncated to ``g`` and the accepted draft
tokens; then the new text is published. A cache with a recurrent state may have to be truncated further. The
next forward then begins with the tokens that it misses, before ``g``.

The proposers of an engine are made, called, and replaced if they fail, by name: the names are those of the
registry in :mod:`localspec.protocol.options`, whose factories are here. A factory returns None where what its
proposer needs is missing. Each round is timed: the cost of its forward, and the time saved for each request.
"""

from __future__ import annotations

import contextlib
import pkgutil
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from operator import index
from typing import NamedTuple

from localspec.backends.base import Backend, Span
from localspec.engine.learning import Learning
from localspec.engine.recall import MemoryRecall
from localspec.engine.sequence import Emitted, Sequence, keeps_rows, widest_round, width_of
from localspec.errors import InvalidOptions, LocalspecError
from localspec.models.needs import WIDEST_ROUND
from localspec.protocol.options import AUTO, DRAFT, KINDS, LOOKUP, NONE, Need, ProposerKind, meanings
from localspec.protocol.requests import EngineConfig
from localspec.speculation.controller import Controller
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.ngrams import PromptLookup
from localspec.speculation.proposer import (
    NOTHING,
    PLAIN_DECODING,
    Ask,
    Draft,
    PlainDecoding,
    Proposer,
    nothing,
)
from localspec.speculation.verify import ForwardRows, TargetRows

DEFAULT_K = 4
"""most draft tokens a round of a proposer that no controller serves"""
LONGEST_K = WIDEST_ROUND - 1
"""most draft tokens a round that a controller serves"""
EXACT_ALONE = nothing("exactness = strict, and no wider forward is known to round as plain decoding does")


class Offer(NamedTuple):
    draft: Draft
    seconds: float


PLAIN, ALONE = Offer(PLAIN_DECODING, 0.0), Offer(EXACT_ALONE, 0.0)


class EngineParts(NamedTuple):
    """The parts of an engine that proposers are made of."""

    target: Backend
    draft: Backend | None
    """one of its draft models"""
    config: EngineConfig
    learning: Learning


def make_all(parts: EngineParts) -> list[Proposer]:
    """The registered proposers that these parts allow, in the order of the registry: those that need a draft
    model if there is one, otherwise the others."""
    made = (make(kind, parts) for kind in KINDS if (kind.needs == DRAFT.needs) == (parts.draft is not None))
    return [proposer for proposer in made if proposer is not None]


def make(kind: ProposerKind, parts: EngineParts) -> Proposer | None:
    """The proposer, or None where what it needs is missing."""
    made: Proposer | None = pkgutil.resolve_name(kind.factory)(parts)
    if made is not None and made.name != kind.name:
        raise ValueError(f"{kind.factory} makes the proposer {made.name!r}, not {kind.name!r}")
    return made


def prompt_lookup(parts: EngineParts) -> Proposer:
    return PromptLookup(n_min=parts.config.ngram_min, n_max=parts.config.ngram_max)


def memory_recall(parts: EngineParts) -> Proposer | None:
    memory = parts.learning.memory
    return None if memory is None else MemoryRecall(memory)


def draft_model(parts: EngineParts) -> Proposer | None:
    if parts.draft is None:
        return None
    return DraftModel(parts.draft, parts.target.vocabulary.size, parts.learning.know_draft(parts.draft).costs)


class ProposerSet(NamedTuple):
    """The proposers for requests with one draft model, or without, by their names: ``plain`` ones draft as
    many tokens as requested; ``controllers`` choose the length, and serve requests that do not set one."""

    plain: Mapping[str, Proposer]
    controllers: Mapping[str, Controller]


class Proposers:
    """Calls each sequence's proposer, for all sequences of one proposer together. The engine's own proposers
    are made of its ``parts``; ``extra`` ones replace those of the same names."""

    def __init__(self, parts: EngineParts, extra: Seq[Proposer]) -> None:
        self._parts, self._extra, self._target = parts, extra, parts.target
        self._members = make_all(parts)
        self._sets: dict[int | None, ProposerSet] = {}
        self.add(None)

    def add(self, number: int | None, draft: Backend | None = None) -> None:
        """Serve requests with this draft model, also by the proposers that need it."""
        drafting = [] if draft is None else make_all(self._parts._replace(draft=draft))
        mine = {proposer.name: proposer for proposer in self._extra}
        members = [mine.get(member.name, member) for member in (*self._members, *drafting)]
        own = [[member] for member in members if member.name not in mine]
        learning = self._parts.learning
        controllers = {
            name: Controller(among, learning.costs, learning.calibration, name=name)
            for name, among in [(AUTO, members), *((each[0].name, each) for each in own)]
        }
        plain = {proposer.name: proposer for proposer in (PlainDecoding(), *members, *self._extra)}
        self._sets[number] = ProposerSet(plain, controllers)

    def drop(self, draft: int) -> None:
        """Forget a draft model; no request with it may be asked for drafts."""
        del self._sets[draft]

    def check(self, name: str, draft: int | None) -> None:
        """Raise :class:`InvalidOptions` for a proposer that no request with this draft model can have."""
        known = self._sets[draft].plain.keys() | self._sets[draft].controllers.keys()
        if name not in known:
            remedy = next((REMEDIES[kind.needs] for kind in KINDS if kind.name == name), None)
            have = ", ".join(sorted(known))
            raise InvalidOptions(f"this model has no proposer {name!r}; available: {have}", remedy)

    def propose(self, sequences: Seq[Sequence]) -> list[Offer]:
        """Return an offer for every sequence, cut to the length that is of use; a proposer that fails is
        replaced at once."""
        offers: dict[int, Offer] = {}
        groups: dict[Proposer, list[Sequence]] = {}
        for sequence in sequences:
            if sequence.proposer == NONE:
                offers[sequence.id] = PLAIN
            elif widest_round(self._target, sequence) > 1:
                groups.setdefault(self._of(sequence), []).append(sequence)
            else:
                offers[sequence.id] = ALONE
        for group in groups.values():
            offers |= self._ask(group)
        return [offers[s.id] for s in sequences]

    def _of(self, sequence: Sequence) -> Proposer:
        """The proposer of a request: a controller if the request sets no length, or a plain one."""
        name, proposers = sequence.proposer, self._sets[sequence.draft]
        controller = proposers.controllers.get(name)
        if controller is not None and (sequence.settings.k is None or name not in proposers.plain):
            return controller
        return proposers.plain[name]

    def _ask_of(self, sequence: Sequence, k: int) -> Ask:
        """Return the ask for a draft of ``k`` tokens, or of as many as the sequence and its cache allow."""
        rollback, replays = self._target.rollback(sequence.slot), self._target.capabilities.replays
        if rollback is not None and replays:
            # If the first token of a forward is taken back with its drafts, a replay feeds it again: it
            # need not count.
            rollback, replays = rollback + 1, False
        ask = sequence.ask(k, rollback)
        room = widest_round(self._target, sequence) - 1 - ask.missing
        return ask._replace(k=max(0, min(ask.k, room)), replays=replays)

    def _ask(self, sequences: Seq[Sequence]) -> dict[int, Offer]:
        """Return the offers for ``sequences``, which all have the same proposer."""
        proposer = self._of(sequences[0])
        most = LONGEST_K if isinstance(proposer, Controller) else DEFAULT_K
        asks = [self._ask_of(s, most if s.settings.k is None else s.settings.k) for s in sequences]
        started = time.perf_counter()
        try:
            drafts = proposer.propose(asks)
            offered = zip(drafts, asks, sequences, strict=True)
            clean = [self._clean(draft, ask.k, sequence) for draft, ask, sequence in offered]
        except Exception as error:
            # No exception of a proposer, native code included, may cost more than speed.
            to = fallback_of(sequences[0].proposer)
            for sequence in sequences:
                sequence.degrade(to, f"{type(error).__name__}: {error}")
            return self._ask(sequences)
        seconds = (time.perf_counter() - started) / len(sequences)
        return {s.id: Offer(draft, seconds) for s, draft in zip(sequences, clean, strict=True)}

    def _clean(self, draft: Draft, k: int, sequence: Sequence) -> Draft:
        """Return at most ``k`` tokens of the draft, and none beyond the target's vocabulary, or that the
        sequence's grammar forbids. Raises an exception for an invalid draft."""
        if draft.q is not None and len(draft.q) != len(draft.tokens):
            raise ValueError(f"a draft of {len(draft.tokens)} tokens has {len(draft.q)} distributions")
        size = self._target.vocabulary.size
        wrong = next((i for i, t in enumerate(draft.tokens) if not 0 <= index(t) < size), k)
        cut = draft.cut(min(k, wrong))
        if sequence.constraint is not None:
            cut = cut.cut(sequence.constraint.prefix(cut.tokens))
        return cut if cut.tokens or cut.reason else NOTHING

    def observe(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Report to the proposer how many tokens of its draft were accepted."""
        try:
            self._of(sequence).observe(sequence.id, draft, accepted)
        except Exception as error:
            # As in a proposal: the request goes on without this proposer.
            sequence.degrade(fallback_of(sequence.proposer), f"{type(error).__name__}: {error}")

    def stop(self, sequence: Sequence) -> None:
        """Report to all proposers that the request has ended: after a failure it had several."""
        own = self._sets.get(sequence.draft)
        for proposer in (*own.plain.values(), *own.controllers.values()) if own is not None else ():
            # The request has its text: an error of a proposer must not spoil that.
            with contextlib.suppress(Exception):
                proposer.stop(sequence.id)


REMEDIES: dict[Need, str | None] = {
    "nothing": None,
    "draft model": "Choose a draft model: `--draft NAME`.",
    "memory": "Run `localspec config set memory true`.",
    "target": "Choose a model that has it, or another proposer with --proposer.",
}
"""by what the proposer needs that is missing"""


def fallback_of(name: str) -> str:
    """The proposer that takes the place of one that failed: prompt lookup, which needs nothing, or none."""
    return LOOKUP.name if name in meanings() and name not in (LOOKUP.name, NONE) else NONE


class PlayedRound(NamedTuple):
    """The round of one sequence: it had ``before`` tokens, and ``emitted`` were added."""

    sequence: Sequence
    draft: Draft
    accepted: int
    before: int
    emitted: int


class RoundClock:
    """Times one round, from its creation on; adds the time of the forward to ``costs``."""

    def __init__(self, costs: CostCurve) -> None:
        self._costs = costs
        self.started = self.proposed = self.forwarded = time.perf_counter()
        """times at which the round began, its drafts were made, and its forward was computed"""
        self.width = 0
        """tokens of the forward"""
        self.choosing = 0.0
        """seconds to choose a token from one row"""

    def end_round(self, played: Seq[PlayedRound]) -> None:
        context = max(p.before for p in played)
        # Forced tokens are gained, and fed, with drafts or without.
        draft, is_forced = played[0].draft, len(played) == 1 and played[0].sequence.constraint
        unforced = len(draft.tokens) + draft.padding
        change = forced = 0.0
        if len(played) == 1:
            change = self._costs.change_s(self.width, context)
            forced = self._costs.change_s(self.width - unforced, context)
            # A round of several requests says little about the cost of one's widths.
            self._costs.observe(self.width, context, self.forwarded - self.proposed)
        else:
            self._costs.interrupt()
        is_plain = self.width == len(played) and not change
        # Each request waits for the whole round; without drafts it would have given each one token.
        plain, seconds = self._costs.seconds(len(played), context), self._costs.seconds
        # At the usual cost: a forward that was held up by something else is not counted as a loss.
        forward = plain if is_plain else seconds(self.width, context) + change
        paid = time.perf_counter() - self.started
        noise = abs(self.forwarded - self.proposed - forward)
        if is_plain:
            # The forward was plain decoding, at the machine's present speed: only the rest is a loss.
            paid += plain - (self.forwarded - self.proposed)
            noise = 0.0
        # Plain decoding would also choose a token from each row: that time is neither won nor lost.
        choosing = len(played) * self.choosing
        without = seconds(self.width - unforced, context) + forced if is_forced else plain
        for p in played:
            won = min(p.accepted + 1, p.emitted) * plain + without - plain - forward
            spent = paid - p.emitted * choosing
            p.sequence.account.count_time(won, forward, p.emitted * plain, spent, noise)


MISSING = 24
"""the most tokens that a cache may miss; if it misses more, they are fed in forwards of their own"""


def play_round(target: Backend, proposers: Proposers, costs: CostCurve, sequences: Seq[Sequence]) -> None:
    """Advance every sequence by at least one token, unless it fails. Raises what the target's forward raises;
    then no token was added. If its rows cannot be read, all sequences end with that error. An error after
    that ends only its own sequence."""
    clock, strict, whole = RoundClock(costs), False, False
    for sequence in sequences:
        _catch_up(target, sequence)
        # A strict request whose rows others could change plays alone.
        strict |= sequence.settings.strict
        whole |= not sequence.settings.sampling.takes_argmax
    offers = proposers.propose(sequences)
    clock.proposed = time.perf_counter()
    spans = [
        Span(s.slot, [*s.tokens[s.fed :], *fed], len(fed) + 1, strict)
        for s, (draft, _) in zip(sequences, offers, strict=True)
        for fed in [(*draft.tokens, *s.tokens[-1:] * draft.padding)]
    ]
    forward = ForwardRows(target.forward(spans))
    width = width_of(target.capabilities, spans)
    exact = keeps_rows(target.capabilities, width, len(spans), strict=strict)
    try:
        forward.wait(whole=whole)
    except LocalspecError as error:
        # After a failure the content of a device's cells is unknown.
        for sequence in sequences:
            sequence.error = error
        return
    clock.forwarded, clock.width = time.perf_counter(), width
    chosen, start, tokens = [], 0, 0
    for sequence, span, offer in zip(sequences, spans, offers, strict=True):
        chosen.append(_choose(sequence, TargetRows(forward, start), offer.draft))
        start, tokens = start + span.rows, tokens + len(chosen[-1].tokens)
    clock.choosing = (time.perf_counter() - clock.forwarded) / max(1, tokens)
    played = []
    for sequence, offer, choice in zip(sequences, offers, chosen, strict=True):
        before, used = len(sequence.tokens), 0
        try:
            used = _accept_and_roll_back(target, sequence, choice, exact=exact)
        except LocalspecError as error:
            sequence.error = error
        accepted = min(choice.accepted, used)
        sequence.account.count_round(offer.draft, accepted, used, offer.seconds)
        if offer.draft.tokens:
            proposers.observe(sequence, offer.draft, accepted)
        played.append(PlayedRound(sequence, offer.draft, accepted, before, used))
    clock.end_round(played)
    for each in played:
        each.sequence.publish()


def _catch_up(target: Backend, sequence: Sequence) -> None:
    """Note how many tokens are fed; before that feed those that the cache misses, if they are more than
    :data:`MISSING`, or too many for a round of a strict request."""
    start, end, strict = target.length(sequence.slot), len(sequence.tokens) - 1, sequence.settings.strict
    sequence.fed = start
    if start == end:
        return
    # A recurrent state cannot go back to every length, and a failed forward may have cost it its cells.
    sequence.wrote(start, start, exact=False)
    widest = widest_round(target, sequence)
    if end - start > min(MISSING, widest - 1):
        most = min(target.capabilities.max_batch, widest)
        for at in range(start, end, most):
            to = min(at + most, end)
            target.forward([Span(sequence.slot, sequence.tokens[at:to], 0, strict)])
            # Plain decoding reads the prompt in whole pieces.
            exact = at >= sequence.whole and keeps_rows(target.capabilities, to - at, strict=strict)
            sequence.wrote(at, to, exact=exact)
        sequence.fed = target.length(sequence.slot)


def _choose(sequence: Sequence, rows: TargetRows, draft: Draft) -> Emitted:
    """Return the tokens that the sequence's rows give; none if they cannot be read, which ends it."""
    try:
        return sequence.choose(rows, draft)
    except LocalspecError as error:
        sequence.error = error
        return Emitted(())


def _accept_and_roll_back(target: Backend, sequence: Sequence, chosen: Emitted, *, exact: bool) -> int:
    """Extend the sequence by the verified tokens, then truncate the target's cache to the accepted ones;
    append what the grammar forces after them, and return how many tokens were used. ``exact``: the rows are
    those of plain decoding, if the cells before them are. The caller publishes the text."""
    before = len(sequence.tokens)
    exact &= sequence.exact == sequence.fed
    used = sequence.extend(chosen, exact=exact)
    # An accepted end token belongs neither to the text nor to the cells that the next turn starts from.
    kept = target.truncate(sequence.slot, min(before + min(chosen.accepted, used), len(sequence.tokens)))
    sequence.wrote(sequence.fed, kept, exact=exact)
    return used + sequence.force(sequence.find_forced()) if sequence.constraint else used
