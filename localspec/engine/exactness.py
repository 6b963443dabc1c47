"""Strict mode: text that speculation cannot change, not even at near-ties.

A forward of one token and a wider one round differently, so the top two logits of a near-tie can swap. The
cells that a wide forward wrote also make later rows differ slightly. The reference is plain decoding: the
prompt in fixed pieces (:mod:`.pieces`), then one token at a time, alone. If rounding can move a row by its
margin or more, the row is recomputed as in the reference. Up to some width most backends round as for one
token, so that such rounds equal the reference; only rounds beyond that width are called *wide*
(:mod:`localspec.backends.rounding` measures the width and the bounds).

``Sequence.exact`` counts the leading cells that equal the reference's. A strict request takes over only such
cells from an earlier one, and of these only those of pieces that its own prompt is read in.
"""

from __future__ import annotations

from localspec.backends.base import Backend, Logits, Span
from localspec.engine.pieces import Pieces
from localspec.engine.sequence import Emitted, Sequence
from localspec.speculation.recompute import RecomputeRisk
from localspec.speculation.verify import ForwardRows, Judge, TargetRows


def near_tie_bound(target: Backend, sequence: Sequence, *, wide: bool) -> float:
    """The margin, in logits, below which this round's rows may choose another token than the reference."""
    if not sequence.settings.strict:
        return 0.0
    capabilities = target.capabilities
    return wide * capabilities.margin_bound + _drifted(sequence) * capabilities.drift_bound


def recompute_risk(target: Backend, sequence: Sequence) -> RecomputeRisk | None:
    """Return the risk of a wide round; None if there is none, or the sequence has inexact cells already."""
    capabilities = target.capabilities
    bound = capabilities.margin_bound + capabilities.drift_bound
    if not sequence.settings.strict or not bound or sequence.proposer == "none" or _drifted(sequence):
        return None
    return RecomputeRisk(capabilities.exact_width, sequence.near_ties.rate(bound))


def _drifted(sequence: Sequence) -> bool:
    return sequence.exact < sequence.fed


def first_token(sequence: Sequence, logits: Logits) -> Emitted:
    """Return the answer's first token, chosen from the prompt's last row."""
    return _choose(sequence, _judge(sequence, logits))


def decide_alone(target: Backend, sequence: Sequence, *, wide: bool) -> Emitted:
    """Return the token after the newest one, as plain decoding chooses it.

    The cache holds all tokens but the newest. After a wide round the row of the newest is recomputed alone.
    If its margin is still too small for the inexact cells before it, those are recomputed, too.
    """
    sequence.stats.rechecks += 1
    if wide:
        judge = _judge(sequence, _write(target, sequence))
        exact = sequence.exact == len(sequence.tokens)
        if exact or judge.margin(0) >= target.capabilities.drift_bound:
            return _choose(sequence, judge)
    sequence.exact = target.truncate(sequence.slot, sequence.exact)
    sequence.stats.replayed_tokens += len(sequence.tokens) - sequence.exact
    return _choose(sequence, _judge(sequence, _write(target, sequence)))


def _judge(sequence: Sequence, logits: Logits) -> Judge:
    return sequence.judge(TargetRows(ForwardRows(logits), 0))


def _choose(sequence: Sequence, judge: Judge) -> Emitted:
    token = judge.token(0, None)
    return sequence.emit(judge.rows, (token,))


def _write(target: Backend, sequence: Sequence) -> Logits:
    """Feed the tokens that the cache misses, the newest included, as the reference does; return the
    newest's row."""
    start, end, width = target.length(sequence.slot), len(sequence.tokens), target.capabilities.exact_width
    spans = list(Pieces(sequence.chunk, target.capabilities).of(start, sequence.prompt_length))
    spans += [(at, min(at + width, end)) for at in range(max(start, sequence.prompt_length), end, width)]
    for at, to in spans:
        logits = target.forward([Span(sequence.slot, sequence.tokens[at:to], int(to == end))])
    if sequence.exact == start:
        sequence.exact = end
        if target.capabilities.replays and end - start > 1:
            # So that the next near-tie does not recompute these cells once more.
            target.mark(sequence.slot, beside=True)
    return logits
