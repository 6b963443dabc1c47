"""How far rounding moves a loaded model's logits, measured on this machine."""

from __future__ import annotations

import numpy as np

from localspec.backends.base import Backend, Rows, Span

PROMPT, STEPS = 16, 8
SAFETY = 2.0
STRIDE = 7919
"""a prime, so that the probe's tokens are spread over the vocabulary"""


def measure_rounding(backend: Backend) -> tuple[float, float]:
    """(margin bound, drift bound) of :class:`Capabilities`, in logits; 0 where all rows are equal to the bit.

    Compares rows of wide forwards with rows of 1-wide ones, and 1-wide rows over cells that wide
    forwards wrote with those over cells of 1-wide ones. Two logits that are each off by at most d
    change their distance by at most 2 d; the largest d seen is then doubled, because a few
    rows do not show the worst.
    """
    tokens = [(1 + i * STRIDE) % backend.vocabulary.size for i in range(PROMPT + 2 * STEPS)]
    sequence = backend.open()
    try:
        backend.forward([Span(sequence, tokens[:PROMPT], 0)])
        narrow = _one_by_one(backend, sequence, tokens[PROMPT:])
        backend.truncate(sequence, PROMPT)
        wide = backend.forward([Span(sequence, tokens[PROMPT:-STEPS], STEPS)]).rows(0, STEPS)
        drifted = _one_by_one(backend, sequence, tokens[-STEPS:])
    finally:
        backend.close(sequence)
    return _bound(wide, narrow[:STEPS]), _bound(drifted, narrow[STEPS:])


def _one_by_one(backend: Backend, sequence: int, tokens: list[int]) -> Rows:
    return np.concatenate([backend.forward([Span(sequence, [t], 1)]).rows(0, 1) for t in tokens])


def _bound(one: Rows, other: Rows) -> float:
    return 2 * SAFETY * float(np.abs(one - other).max())
