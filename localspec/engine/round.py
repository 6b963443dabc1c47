"""One round of speculative decoding, for a batch of sequences: the decode loop.

propose → forward → verify → extend → truncate → publish. The target's cache holds every token but the
newest, ``g``. The forward appends ``[g, t1 … tk]`` to it. After the verification each sequence is extended
by the accepted draft tokens and the target's own token, and its cache is truncated to ``g`` and the accepted
draft tokens; then the new text is published. A cache with a recurrent state may have to be truncated further.
The next forward then begins with the tokens that it misses, before ``g``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import partial
from typing import NamedTuple

from localspec.backends.base import Backend, Span
from localspec.engine.clock import Played, RoundClock
from localspec.engine.events import RoundPlayed
from localspec.engine.exactness import decide_alone, near_tie_bound, recompute_risk
from localspec.engine.proposers import Proposers
from localspec.engine.sequence import Emitted, Sequence
from localspec.errors import LocalspecError
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Draft
from localspec.speculation.verify import ForwardRows, TargetRows, Verdict, verify

MISSING = 24
"""the most tokens that a cache may miss; if it misses more, they are fed in forwards of their own"""
WATCH = 2
"""one in this many rounds has its margins examined only to estimate the frequency of near-ties"""


class _Judged(NamedTuple):
    verdict: Verdict
    emitted: Emitted


def play_round(
    target: Backend,
    proposers: Proposers,
    costs: CostCurve,
    sequences: Seq[Sequence],
    report: Callable[[RoundPlayed], None] | None = None,
) -> None:
    """Advance every sequence by at least one token, unless it fails; ``report`` gets a record of each.

    Raises what the target's forward raises; then no token was added. If its rows cannot be read, all
    sequences end with that error. An error after that ends only its own sequence.
    """
    clock = RoundClock(costs)
    for sequence in sequences:
        # A failed forward may have cost a recurrent state its cells.
        sequence.exact = min(sequence.exact, target.length(sequence.slot))
        _catch_up(target, sequence)
        sequence.fed = target.length(sequence.slot)
        sequence.recompute_risk = recompute_risk(target, sequence)
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
        # After a failure the content of a device's cells is unknown.
        for sequence in sequences:
            sequence.error = error
        return
    clock.forwarded(width)
    judged, start = [], 0
    for sequence, offer in zip(sequences, offers, strict=True):
        bound = near_tie_bound(target, sequence, wide=wide)
        try:
            judged.append(_judge(sequence, offer.draft, TargetRows(forward, start), bound))
        except LocalspecError as error:
            sequence.error = error
            judged.append(_Judged(Verdict((), 0), Emitted(())))
        start += len(offer.draft.tokens) + 1
    clock.judged(max(1, sum(len(each.verdict.tokens) + each.verdict.near_tie for each in judged)))
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
    clock.ended(played)
    if report is not None:
        for each in played:
            report(clock.record(each))


def _width(target: Backend, spans: Seq[Span]) -> tuple[int, bool]:
    """Return the number of tokens that a forward computes, padding included, and True if its rows may be
    rounded differently from those of a 1-wide forward."""
    widths, capabilities = [len(span.tokens) for span in spans], target.capabilities
    width = max(widths) * len(widths) if capabilities.batches else sum(widths)
    inexact = len(spans) > 1 and not capabilities.exact_batches
    return width, width > capabilities.exact_width or inexact


def _catch_up(target: Backend, sequence: Sequence) -> None:
    """Feed the tokens that the cache misses, if they are more than :data:`MISSING`."""
    start, end = target.length(sequence.slot), len(sequence.tokens) - 1
    if end - start > MISSING:
        most = target.capabilities.max_batch
        for at in range(start, end, most):
            target.forward([Span(sequence.slot, sequence.tokens[at : min(at + most, end)], 0)])
        if sequence.exact == start and end - start <= target.capabilities.exact_width:
            sequence.exact = end


def _judge(sequence: Sequence, draft: Draft, rows: TargetRows, bound: float) -> _Judged:
    """Verify one sequence's draft against its rows; margins below ``bound`` are near-ties."""
    judge = sequence.judge(rows, draft)
    is_watched = bound or (sequence.recompute_risk is not None and sequence.stats.rounds % WATCH == 0)
    verdict = verify(
        draft.tokens,
        judge,
        end_tokens=sequence.end_tokens,
        is_near_tie=partial(_is_near_tie, sequence, bound) if is_watched else None,
    )
    return _Judged(verdict, sequence.emit(rows, verdict.tokens, verdict.accepted, draft.source))


def _is_near_tie(sequence: Sequence, bound: float, margin: float) -> bool:
    sequence.near_ties.see(margin)
    if bound:
        sequence.stats.see_margin(margin, bound)
    return margin < bound


def _settle(target: Backend, sequence: Sequence, draft: Draft, judged: _Judged, *, wide: bool) -> int:
    """Extend the sequence by the verified tokens, then truncate the target's cache to the accepted ones;
    return how many draft tokens those are. A near-tie is decided alone, after the truncation. The caller
    publishes the text."""
    before = len(sequence.tokens) - 1
    exact = not wide and sequence.exact == sequence.fed
    accepted = min(judged.verdict.accepted, sequence.extend(judged.emitted))
    if judged.verdict.near_tie and not sequence.ended:
        kept = target.truncate(sequence.slot, before + accepted)
        sequence.exact = min(sequence.exact, kept)
        sequence.extend(decide_alone(target, sequence, wide=wide))
    else:
        # An accepted end token belongs neither to the text nor to the cells that the next turn starts from.
        kept = target.truncate(sequence.slot, min(before + 1 + accepted, len(sequence.tokens)))
        sequence.exact = kept if exact else min(sequence.exact, kept)
    return accepted
