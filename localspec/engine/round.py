"""One round of speculative decoding, for a batch of sequences: the decode loop.

propose → forward → verify → roll back → emit. The target's cache holds every token but the newest,
``g``; the forward appends ``[g, t1 … tk]`` and each sequence keeps what was right. A cache with a recurrent
state goes back to where it was kept; what it misses then stands before ``g`` in the next forward.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple

from localspec.backends.base import Backend, Span
from localspec.engine.clock import Played, RoundClock
from localspec.engine.events import RoundPlayed
from localspec.engine.exactness import decide_alone, doubt_bound, rewriting
from localspec.engine.proposers import Proposers
from localspec.engine.sequence import Emitted, Sequence
from localspec.errors import LocalspecError
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Draft
from localspec.speculation.verify import ForwardRows, TargetRows, Verdict, verify

MISSING = 24
"""tokens that a cache may miss before it gets them in a forward of their own"""
WATCH = 2
"""rounds between two whose margins are looked at only to know how often they are small"""


class _Judged(NamedTuple):
    verdict: Verdict
    emitted: Emitted


def play_round(
    target: Backend, proposers: Proposers, costs: CostCurve, sequences: Seq[Sequence]
) -> list[RoundPlayed]:
    """Advance every sequence by at least one token; returns what was done, a record for each.

    Raises what the forward raises; then nothing has changed. Where its rows cannot be read all sequences
    end with that error, a failure after that ends one.
    """
    clock = RoundClock(costs)
    for sequence in sequences:
        # Cells of a recurrent state are lost where the forward before this one failed.
        sequence.exact = min(sequence.exact, target.length(sequence.slot))
        _catch_up(target, sequence)
        sequence.fed = target.length(sequence.slot)
        sequence.rewriting = rewriting(target, sequence)
    offers = proposers.propose(sequences)
    clock.proposed()
    spans = [
        Span(s.slot, [*s.tokens[s.fed :], *offer.draft.tokens], len(offer.draft.tokens) + 1)
        for s, offer in zip(sequences, offers, strict=True)
    ]
    forward = ForwardRows(target.forward(spans))
    width, wide = _width(target, spans)
    try:
        forward.wait(whole=not all(s.sampler.params.takes_argmax for s in sequences))
    except LocalspecError as error:
        # What a device has done with its cells when it fails, nobody knows.
        for sequence in sequences:
            sequence.error = error
        return []
    clock.forwarded(width)
    judged, start = [], 0
    for sequence, offer in zip(sequences, offers, strict=True):
        bound = doubt_bound(target, sequence, wide=wide)
        try:
            judged.append(_judge(sequence, offer.draft, TargetRows(forward, start), bound))
        except LocalspecError as error:
            sequence.error = error
            judged.append(_Judged(Verdict((), 0), Emitted(())))
        start += len(offer.draft.tokens) + 1
    clock.judged(max(1, sum(len(each.verdict.tokens) + each.verdict.doubtful for each in judged)))
    played = []
    for sequence, offer, judgement in zip(sequences, offers, judged, strict=True):
        before, emitted, redone = len(sequence.tokens), sequence.emitted, sequence.stats.redone
        try:
            accepted = _settle(target, sequence, offer.draft, judgement, wide=wide)
        except LocalspecError as error:
            accepted, sequence.error = 0, error
        sequence.count_round(offer.draft, accepted, offer.seconds)
        proposers.observe(sequence, offer.draft, accepted)
        sequence.publish()
        emitted, redone = sequence.emitted - emitted, sequence.stats.redone - redone
        played.append(Played(sequence, offer.draft, accepted, before, emitted, redone))
    return clock.ended(played)


def _width(target: Backend, spans: Seq[Span]) -> tuple[int, bool]:
    """How many tokens a forward computes, and whether it may round otherwise than for one."""
    widths, capabilities = [len(span.tokens) for span in spans], target.capabilities
    width = max(widths) * len(widths) if capabilities.batches else sum(widths)
    inexact = len(spans) > 1 and not capabilities.exact_batches
    return width, width > capabilities.exact_width or inexact


def _catch_up(target: Backend, sequence: Sequence) -> None:
    """Feed what the cache misses, if that is much."""
    start, end = target.length(sequence.slot), len(sequence.tokens) - 1
    if end - start > MISSING:
        most = target.capabilities.max_batch
        for at in range(start, end, most):
            target.forward([Span(sequence.slot, sequence.tokens[at : min(at + most, end)], 0)])
        if sequence.exact == start and end - start <= target.capabilities.exact_width:
            sequence.exact = end


def _judge(sequence: Sequence, draft: Draft, rows: TargetRows, bound: float) -> _Judged:
    """Verify one sequence's draft against its rows."""
    judge = sequence.judge(rows, draft)

    def doubt(margin: float) -> bool:
        sequence.near_ties.see(margin)
        if bound:
            sequence.stats.see_margin(margin, bound)
        return margin < bound

    watched = bound or (sequence.rewriting is not None and sequence.stats.rounds % WATCH == 0)
    verdict = verify(draft.tokens, judge, end_tokens=sequence.end_tokens, doubt=doubt if watched else None)
    return _Judged(verdict, sequence.emit(rows, verdict.tokens, verdict.accepted, draft.source))


def _settle(target: Backend, sequence: Sequence, draft: Draft, judged: _Judged, *, wide: bool) -> int:
    """Emit, and roll the target back to what was accepted; returns how many draft tokens that was."""
    before = len(sequence.tokens) - 1
    exact = not wide and sequence.exact == sequence.fed
    accepted = min(judged.verdict.accepted, sequence.extend(judged.emitted))
    if judged.verdict.doubtful and not sequence.ended:
        kept = target.truncate(sequence.slot, before + accepted)
        sequence.exact = min(sequence.exact, kept)
        sequence.extend(decide_alone(target, sequence, wide=wide))
    else:
        # An accepted end token is no part of the text, nor of what the next turn builds on.
        kept = target.truncate(sequence.slot, min(before + 1 + accepted, len(sequence.tokens)))
        sequence.exact = kept if exact else min(sequence.exact, kept)
    return accepted
