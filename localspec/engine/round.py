"""One round of speculative decoding, for a batch of sequences: the decode loop.

propose → forward → verify → roll back → emit. The target's cache holds every token but the newest,
``g``; the forward appends ``[g, t1 … tk]`` and each sequence keeps what was right.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple

from localspec.backends.base import Backend, Span
from localspec.engine.proposers import Proposers
from localspec.engine.sequence import Emitted, Sequence
from localspec.errors import LocalspecError
from localspec.speculation.draft import Draft
from localspec.speculation.verify import (
    ForwardRows,
    TargetRows,
    Verdict,
    judge_for,
    log_probability,
    margin,
    verify,
)


class _Judged(NamedTuple):
    verdict: Verdict
    emitted: list[Emitted]


def play_round(target: Backend, proposers: Proposers, sequences: Seq[Sequence]) -> None:
    """Advance every sequence by at least one token.

    Raises what the forward raises; then nothing has changed. A failure after it ends one sequence.
    """
    offers = proposers.propose(sequences)
    spans = [
        Span(s.slot, [s.newest, *offer.draft.tokens], len(offer.draft.tokens) + 1)
        for s, offer in zip(sequences, offers, strict=True)
    ]
    forward = ForwardRows(target.forward(spans))
    wide = sum(len(span.tokens) for span in spans) > 1
    judged, start = [], 0
    for sequence, offer in zip(sequences, offers, strict=True):
        rows = TargetRows(forward, start)
        start += len(offer.draft.tokens) + 1
        judged.append(_judge(sequence, offer.draft, rows, _doubt_bound(target, offer.draft, wide=wide)))
    for sequence, offer, (verdict, emitted) in zip(sequences, offers, judged, strict=True):
        try:
            accepted = _settle(target, sequence, offer.draft, verdict, emitted)
        except LocalspecError as error:
            accepted, sequence.error = 0, error
        sequence.count_round(offer.draft, accepted, offer.seconds)
        proposers.observe(sequence, offer.draft, accepted)
        sequence.publish()


def _doubt_bound(target: Backend, draft: Draft, *, wide: bool) -> float:
    """The margin under which a row must be computed again alone; 0: every row is as good as alone."""
    rollback = target.capabilities.rollback
    can_redo = rollback is None or rollback > len(draft.tokens)
    return target.capabilities.margin_bound if wide and can_redo else 0.0


def _judge(sequence: Sequence, draft: Draft, rows: TargetRows, bound: float) -> _Judged:
    """Verify one sequence's draft against its rows."""
    sampler, settings = sequence.sampler, sequence.settings
    judge = judge_for(rows, sampler, draft, len(sequence.tokens), settings.tau)

    def doubt(i: int) -> bool:
        gap = margin(rows, sampler, draft.tokens, i)
        stats = sequence.stats
        stats.min_margin = gap if stats.min_margin is None else min(gap, stats.min_margin)
        stats.margin_bound = bound
        return gap < bound

    strict = settings.strict and bound > 0
    verdict = verify(draft.tokens, judge, end_tokens=sequence.end_tokens, doubt=doubt if strict else None)
    emitted = [
        Emitted(
            token,
            draft.source if i < verdict.accepted else "target",
            log_probability(rows.row(i), token) if settings.logprobs else None,
        )
        for i, token in enumerate(verdict.tokens)
    ]
    return _Judged(verdict, emitted)


def _settle(
    target: Backend, sequence: Sequence, draft: Draft, verdict: Verdict, emitted: list[Emitted]
) -> int:
    """Emit, and roll the target back to what was accepted; returns how many draft tokens that was."""
    before = target.length(sequence.slot) - len(draft.tokens) - 1
    accepted = min(verdict.accepted, sequence.extend(emitted))
    if verdict.doubtful and not sequence.ended:
        target.truncate(sequence.slot, before + accepted)
        _redo(target, sequence)
    else:
        # An accepted end token is no part of the text, nor of what the next turn builds on.
        target.truncate(sequence.slot, min(before + 1 + accepted, len(sequence.tokens)))
    return accepted


def _redo(target: Backend, sequence: Sequence) -> None:
    """Too close to call in a wide forward: feed the newest token again, alone, as plain decoding would."""
    logits = target.forward([Span(sequence.slot, [sequence.newest], 1)])
    row = TargetRows(ForwardRows(logits), 0).row(0)
    token = sequence.sampler.pick(row, (), len(sequence.tokens))
    logprob = log_probability(row, token) if sequence.settings.logprobs else None
    sequence.stats.rechecks += 1
    sequence.extend([Emitted(token, "target", logprob)])
