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
from typing import NamedTuple

from localspec.backends.base import Backend, Span
from localspec.engine.clock import Played, RoundClock
from localspec.engine.events import RoundPlayed
from localspec.engine.exactness import keeps_rows, widest_round, width_of
from localspec.engine.proposers import Proposers
from localspec.engine.sequence import Emitted, Sequence
from localspec.errors import LocalspecError
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Draft
from localspec.speculation.verify import ForwardRows, TargetRows, Verdict, verify

MISSING = 24
"""the most tokens that a cache may miss; if it misses more, they are fed in forwards of their own"""


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
        sequence.kept(target.length(sequence.slot))
        _catch_up(target, sequence)
        sequence.fed = target.length(sequence.slot)
    offers = proposers.propose(sequences)
    clock.proposed()
    # A strict request whose rows others could change plays alone.
    strict = any(s.settings.strict for s in sequences)
    spans = [
        Span(s.slot, [*s.tokens[s.fed :], *offer.draft.tokens], len(offer.draft.tokens) + 1, strict)
        for s, offer in zip(sequences, offers, strict=True)
    ]
    forward = ForwardRows(target.forward(spans))
    width = width_of(target.capabilities, spans)
    exact = keeps_rows(target.capabilities, width, len(spans), strict=strict)
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
        try:
            judged.append(_judge(sequence, offer.draft, TargetRows(forward, start)))
        except LocalspecError as error:
            sequence.error = error
            judged.append(_Judged(Verdict((), 0), Emitted(())))
        start += len(offer.draft.tokens) + 1
    clock.judged(max(1, sum(len(each.verdict.tokens) for each in judged)))
    played = []
    for sequence, offer, judgement in zip(sequences, offers, judged, strict=True):
        before, emitted = len(sequence.tokens), sequence.emitted
        try:
            accepted = _settle(target, sequence, judgement, exact=exact)
        except LocalspecError as error:
            accepted, sequence.error = 0, error
        sequence.count_round(offer.draft, accepted, offer.seconds)
        proposers.observe(sequence, offer.draft, accepted)
        sequence.publish()
        played.append(Played(sequence, offer.draft, accepted, before, sequence.emitted - emitted))
    clock.ended(played)
    if report is not None:
        for each in played:
            report(clock.record(each))


def _catch_up(target: Backend, sequence: Sequence) -> None:
    """Feed the tokens that the cache misses, if they are more than :data:`MISSING`, or too many for a round
    of a strict request."""
    start, end, strict = target.length(sequence.slot), len(sequence.tokens) - 1, sequence.settings.strict
    widest = widest_round(target, sequence)
    if end - start > min(MISSING, widest - 1):
        most = min(target.capabilities.max_batch, widest)
        for at in range(start, end, most):
            to = min(at + most, end)
            target.forward([Span(sequence.slot, sequence.tokens[at:to], 0, strict)])
            sequence.wrote(at, to, exact=keeps_rows(target.capabilities, to - at, strict=strict))


def _judge(sequence: Sequence, draft: Draft, rows: TargetRows) -> _Judged:
    """Verify one sequence's draft against its rows."""
    verdict = verify(draft.tokens, sequence.judge(rows, draft), end_tokens=sequence.end_tokens)
    return _Judged(verdict, sequence.emit(rows, verdict.tokens, verdict.accepted, draft.source))


def _settle(target: Backend, sequence: Sequence, judged: _Judged, *, exact: bool) -> int:
    """Extend the sequence by the verified tokens, then truncate the target's cache to the accepted ones;
    return how many draft tokens those are. ``exact``: the rows are those of plain decoding, if the cells
    before them are. The caller publishes the text."""
    before = len(sequence.tokens) - 1
    exact &= sequence.exact == sequence.fed
    used = sequence.extend(judged.emitted, exact=exact)
    accepted = min(judged.verdict.accepted, used)
    # An accepted end token belongs neither to the text nor to the cells that the next turn starts from.
    kept = target.truncate(sequence.slot, min(before + 1 + accepted, len(sequence.tokens)))
    sequence.wrote(sequence.fed, kept, exact=exact)
    return accepted
