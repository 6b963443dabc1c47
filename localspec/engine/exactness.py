"""Strict mode: text that speculation cannot change, not even at near-ties.

A forward of one token and a wider one round differently, so the top two logits of a near-tie can
swap; and the cells that a wide forward wrote make later rows differ a little too. The reference is
plain decoding: the prompt in fixed pieces (:mod:`.pieces`), then one token at a time, alone. Where a
row's margin is under what rounding can move, the row is computed again as the reference would compute it.
Up to some width most backends round as for one token: such rounds are as good as the reference, and *wide*
are only those beyond it (:mod:`localspec.backends.rounding` measures all this).

``Sequence.exact`` counts the leading cells that equal the reference's. A strict request takes over only
such cells from an earlier one, and of these only those of pieces that its own prompt is read in.
"""

from __future__ import annotations

from localspec.backends.base import Backend, Logits, Span
from localspec.engine.pieces import Pieces
from localspec.engine.sequence import Emitted, Sequence
from localspec.speculation.rewriting import Rewriting
from localspec.speculation.verify import ForwardRows, Judge, TargetRows


def doubt_bound(target: Backend, sequence: Sequence, *, wide: bool) -> float:
    """The margin, in logits, under which this round's rows may choose another token than the reference."""
    if not sequence.settings.strict:
        return 0.0
    capabilities = target.capabilities
    return wide * capabilities.margin_bound + _drifted(sequence) * capabilities.drift_bound


def rewriting(target: Backend, sequence: Sequence) -> Rewriting | None:
    """What a wide round would risk; None: nothing that is not risked already."""
    capabilities = target.capabilities
    bound = capabilities.margin_bound + capabilities.drift_bound
    if not sequence.settings.strict or not bound or sequence.proposer == "none" or _drifted(sequence):
        return None
    return Rewriting(capabilities.exact_width, sequence.near_ties.rate(bound))


def _drifted(sequence: Sequence) -> bool:
    return sequence.exact < sequence.fed


def first_token(sequence: Sequence, logits: Logits) -> Emitted:
    """The answer's first token, from the prompt's last row."""
    return _choose(sequence, _judge(sequence, logits))


def decide_alone(target: Backend, sequence: Sequence, *, wide: bool) -> Emitted:
    """The next token after the newest one, decided as plain decoding would.

    The cache holds all tokens but the newest. After a wide round its row is computed again alone;
    where that is still too close for cells that a wide forward wrote, those are written anew.
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
    """Feed what the cache misses, the newest token too, as the reference does; its row."""
    start, end, width = target.length(sequence.slot), len(sequence.tokens), target.capabilities.exact_width
    spans = list(Pieces(sequence.chunk, target.capabilities).of(start, sequence.prompt_length))
    spans += [(at, min(at + width, end)) for at in range(max(start, sequence.prompt_length), end, width)]
    for at, to in spans:
        logits = target.forward([Span(sequence.slot, sequence.tokens[at:to], int(to == end))])
    if sequence.exact == start:
        sequence.exact = end
        if target.capabilities.replays and end - start > 1:
            # So that nothing of it is written anew once more at the next doubt.
            target.mark(sequence.slot, beside=True)
    return logits
