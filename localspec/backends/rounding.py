"""How far rounding moves a loaded model's logits, measured on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from localspec.backends.base import Backend, Rows, Span

CONTEXTS = (48, 320)
"""lengths of the prompts that are probed, in tokens: attention sums differently over short and long ones"""
ENOUGH_S = 0.5
"""a model whose first probe took longer is not probed again: loading it must not take much longer"""
STEPS, AFTER, WIDTH, PIECE = 15, 9, 5, 37
PLAUSIBLE = 32
"""how many of a row's best tokens are compared: others are never chosen"""
SAFETY = 1.5


class Rounding(NamedTuple):
    """The fields of :class:`Capabilities` that are measured; 0 and True: rows are equal to the bit."""

    margin_bound: float
    drift_bound: float
    exact_pieces: bool


def measure_rounding(backend: Backend) -> Rounding:
    """Probe a model, with all its sequences closed.

    The reference is a prompt at once and then one token at a time. Compared with it are rows of wider
    forwards, 1-wide rows over cells that wider forwards wrote, and such over a prompt in other pieces:
    by how much the distance of two plausible tokens changed. A few dozen rows do not show the worst,
    hence the factor. The text is this file: natural enough, and always there.
    """
    limits = backend.capabilities
    longest = min(limits.n_ctx - STEPS - AFTER, limits.max_batch)
    text = backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
    margin = drift = pieces = 0.0
    started = time.perf_counter()
    for n in sorted({min(n, longest) for n in CONTEXTS}):
        found = _probe(backend, text[: n + STEPS + AFTER], n)
        margin, drift, pieces = (max(pair) for pair in zip((margin, drift, pieces), found, strict=True))
        if time.perf_counter() - started > ENOUGH_S:
            # Not looked far enough to promise this one.
            return Rounding(SAFETY * margin, SAFETY * drift, exact_pieces=False)
    return Rounding(SAFETY * margin, SAFETY * drift, exact_pieces=pieces == 0.0)


def _probe(backend: Backend, tokens: list[int], n: int) -> tuple[float, float, float]:
    """(change in wide rows, over cells of wide rows, over a prompt in pieces) behind ``n`` tokens."""
    steps, after = tokens[n : n + STEPS], tokens[n + STEPS :]
    sequence = backend.open()
    try:
        _feed(backend, sequence, tokens[:n], n)
        reference = _feed(backend, sequence, steps, 1)
        reference_after = _feed(backend, sequence, after, 1)
        backend.truncate(sequence, n)
        wide = _feed(backend, sequence, steps, WIDTH)
        drifted = _feed(backend, sequence, after, 1)
        backend.truncate(sequence, 0)
        _feed(backend, sequence, tokens[:n], PIECE)
        pieces = _feed(backend, sequence, steps[:AFTER], 1)
    finally:
        backend.close(sequence)
    changes = (wide, reference), (drifted, reference_after), (pieces, reference[:AFTER])
    return _change(*changes[0]), _change(*changes[1]), _change(*changes[2])


def _feed(backend: Backend, sequence: int, tokens: list[int], width: int) -> Rows:
    """Feed ``tokens``, ``width`` at a time; their rows."""
    pieces = [tokens[at : at + width] for at in range(0, len(tokens), width)]
    return np.concatenate(
        [backend.forward([Span(sequence, piece, len(piece))]).rows(0, len(piece)) for piece in pieces]
    )


def _change(rows: Rows, reference: Rows) -> float:
    """The largest change, over all rows, in the distance of two of a row's best tokens."""
    best = np.argpartition(reference, -PLAUSIBLE, axis=-1)[:, -PLAUSIBLE:]
    moved = np.take_along_axis(rows, best, -1) - np.take_along_axis(reference, best, -1)
    return float(np.ptp(moved, axis=-1).max())
