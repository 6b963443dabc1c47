"""One round of speculative decoding, for a batch of sequences: the decode loop.

propose → forward → verify → extend → truncate → publish. The target's cache holds every token but the
newest, ``g``. The forward appends ``[g, t1 … tk]`` to it. After the verification each sequence is extended
by the accepted draft tokens and the target's own token, and its cache is truncated to ``g`` and the accepted
draft tokens; then the new text is published. A cache with a recurrent state may have to be truncated further.
The next forward then begins with the tokens that it misses, before ``g``.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from localspec.backends.base import Backend, Span
from localspec.engine.clock import Played, RoundClock
from localspec.engine.exactness import keeps_rows, widest_round, width_of
from localspec.engine.proposers import Offer, Proposers
from localspec.engine.sequence import Emitted, Sequence
from localspec.errors import LocalspecError
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Draft
from localspec.speculation.verify import ForwardRows, TargetRows

MISSING = 24
"""the most tokens that a cache may miss; if it misses more, they are fed in forwards of their own"""


def play_round(
    target: Backend,
    proposers: Proposers,
    costs: CostCurve,
    sequences: Seq[Sequence],
) -> None:
    """Advance every sequence by at least one token, unless it fails.

    Raises what the target's forward raises; then no token was added. If its rows cannot be read, all
    sequences end with that error. An error after that ends only its own sequence.
    """
    clock, strict, whole = RoundClock(costs), False, False
    for sequence in sequences:
        _catch_up(target, sequence)
        # A strict request whose rows others could change plays alone.
        strict |= sequence.settings.strict
        whole |= not sequence.settings.sampling.takes_argmax
    offers = proposers.propose(sequences)
    clock.proposed()
    spans = _spans(sequences, offers, strict=strict)
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
    clock.forwarded(width)
    chosen, start, tokens = [], 0, 0
    for sequence, span, offer in zip(sequences, spans, offers, strict=True):
        chosen.append(_chosen(sequence, TargetRows(forward, start), offer.draft))
        start, tokens = start + span.rows, tokens + len(chosen[-1].tokens)
    clock.judged(max(1, tokens))
    played = []
    for sequence, offer, choice in zip(sequences, offers, chosen, strict=True):
        before, used = len(sequence.tokens), 0
        try:
            used = _settle(target, sequence, choice, exact=exact)
        except LocalspecError as error:
            sequence.error = error
        accepted = min(choice.accepted, used)
        sequence.account.count_round(offer.draft, accepted, used, offer.seconds)
        if offer.draft.tokens:
            proposers.observe(sequence, offer.draft, accepted)
        played.append(Played(sequence, offer.draft, accepted, before, used))
    clock.ended(played)
    for each in played:
        if each.sequence.watched:
            each.sequence.events.append(clock.record(each))
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


def _spans(sequences: Seq[Sequence], offers: Seq[Offer], *, strict: bool) -> list[Span]:
    spans = []
    for sequence, (draft, _) in zip(sequences, offers, strict=True):
        tokens = [*sequence.tokens[sequence.fed :], *draft.tokens]
        spans.append(Span(sequence.slot, tokens, len(draft.tokens) + 1, strict))
    return spans


def _chosen(sequence: Sequence, rows: TargetRows, draft: Draft) -> Emitted:
    """Return the tokens that the sequence's rows give; none if they cannot be read, which ends it."""
    try:
        return sequence.choose(rows, draft)
    except LocalspecError as error:
        sequence.error = error
        return Emitted(())


def _settle(target: Backend, sequence: Sequence, chosen: Emitted, *, exact: bool) -> int:
    """Extend the sequence by the verified tokens, then truncate the target's cache to the accepted ones;
    return how many tokens were used. ``exact``: the rows are those of plain decoding, if the cells before
    them are. The caller publishes the text."""
    before = len(sequence.tokens)
    exact &= sequence.exact == sequence.fed
    used = sequence.extend(chosen, exact=exact)
    # An accepted end token belongs neither to the text nor to the cells that the next turn starts from.
    kept = target.truncate(sequence.slot, min(before + min(chosen.accepted, used), len(sequence.tokens)))
    sequence.wrote(sequence.fed, kept, exact=exact)
    return used
