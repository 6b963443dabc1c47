"""How far rounding moves a loaded model's logits, measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from localspec.backends.base import ANY_WIDTH, Backend, Rows, Span

CONTEXTS = (48, 320)
"""lengths of the prompts that are probed, in tokens: attention sums differently over short and long ones"""
ENOUGH_S = 1.0
"""a model that takes longer is not probed while somebody waits for it to be loaded"""
WIDTHS = 2, 3, 4, 5, 8
"""of the wide forwards that are probed: kernels change with the number of rows"""
STEPS, AFTER, PIECE = sum(WIDTHS), 9, 37
LONG = 256
"""a prompt in pieces was probed for good if it was so long: kernels change with the length, too"""
PLAUSIBLE = 32
"""how many of a row's best tokens are compared: others are never chosen"""
SAFETY = 2.0


class Rounding(NamedTuple):
    """The fields of :class:`Capabilities` that are measured; 0 and True: rows are equal to the bit."""

    margin_bound: float
    drift_bound: float
    exact_width: int
    exact_pieces: bool


PRESUMED = Rounding(0.5, 0.5, exact_width=1, exact_pieces=False)
"""until a model has been probed to the end: more than any kernel was seen to move a row of a round"""


def measure_rounding(backend: Backend, *, within_s: float = ENOUGH_S) -> Rounding | None:
    """Probe a model, with all its sequences closed; None if ``within_s`` seconds were not enough."""
    steps, started = rounding_steps(backend), time.perf_counter()
    while time.perf_counter() - started < within_s:
        try:
            next(steps)
        except StopIteration as end:
            found: Rounding = end.value
            return found
    steps.close()
    return None


def set_rounding(backend: Backend, rounding: Rounding) -> None:
    """Let the backend's capabilities say what was measured."""
    backend.capabilities = replace(backend.capabilities, **rounding._asdict())


def rounding_steps(backend: Backend) -> Generator[None, None, Rounding]:
    """The probe, a step per forward; closing it frees what it used.

    The reference is a prompt at once and then one token at a time. Compared with it are rows of wider
    forwards, 1-wide rows over cells that wider forwards wrote, and such over a prompt in other pieces:
    by how much the distance of two plausible tokens changed. A few dozen rows do not show the worst,
    hence the factor: of 31,840 rows of the bundled F16 model 3 moved by more than 1.5 times as much.
    The text is this file: natural enough, and always there. Raises :class:`EngineBusy` where no
    sequence is free.
    """
    limits = backend.capabilities
    longest = min(limits.n_ctx - STEPS - AFTER, limits.max_batch)
    text = backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
    wide: tuple[float, ...] = (0.0,) * len(WIDTHS)
    drift = pieces = 0.0
    for n in sorted({min(n, longest) for n in CONTEXTS}):
        found = yield from _probe(backend, text[: n + STEPS + AFTER], n)
        wide = tuple(max(pair) for pair in zip(wide, found.wide, strict=True))
        drift, pieces = max(drift, found.drift), max(pieces, found.pieces)
    return Rounding(
        SAFETY * max(wide),
        SAFETY * drift,
        exact_width=_exact_width(wide, drift),
        exact_pieces=pieces == drift == 0.0 and longest >= LONG,
    )


class _Changes(NamedTuple):
    """In the rows of forwards of each of the ``WIDTHS``, over the cells that these wrote, and over a
    prompt in pieces."""

    wide: tuple[float, ...]
    drift: float
    pieces: float


def _exact_width(wide: Sequence[float], drift: float) -> int:
    """The widest forward up to which nothing changed: one that changes no row changes no cell, because
    every row looks at its own cells."""
    if not any(wide):
        return 1 if drift else ANY_WIDTH
    exact = [width for width, _ in takewhile(lambda pair: not pair[1], zip(WIDTHS, wide, strict=True))]
    return exact[-1] if exact else 1


def _probe(backend: Backend, tokens: list[int], n: int) -> Generator[None, None, _Changes]:
    """The changes behind ``n`` tokens."""
    steps, after = tokens[n : n + STEPS], tokens[n + STEPS :]
    sequence = backend.open()
    try:
        yield from _fill(backend, sequence, tokens[:n], n)
        reference = yield from _feed(backend, sequence, steps, [1] * STEPS)
        reference_after = yield from _feed(backend, sequence, after, [1] * AFTER)
        backend.truncate(sequence, n)
        wide = yield from _feed(backend, sequence, steps, WIDTHS)
        drifted = yield from _feed(backend, sequence, after, [1] * AFTER)
        backend.truncate(sequence, 0)
        yield from _fill(backend, sequence, tokens[:n], PIECE)
        pieces = yield from _feed(backend, sequence, steps[:AFTER], [1] * AFTER)
    finally:
        backend.close(sequence)
    borders = list(accumulate(WIDTHS))[:-1]
    by_width = zip(np.split(wide, borders), np.split(reference, borders), strict=True)
    return _Changes(
        wide=tuple(_change(rows, same) for rows, same in by_width),
        drift=_change(drifted, reference_after),
        pieces=_change(pieces, reference[:AFTER]),
    )


def _fill(backend: Backend, sequence: int, tokens: list[int], width: int) -> Generator[None, None, None]:
    """Feed ``tokens``, ``width`` at a time."""
    for at in range(0, len(tokens), width):
        backend.forward([Span(sequence, tokens[at : at + width], 0)])
        yield


def _feed(
    backend: Backend, sequence: int, tokens: list[int], widths: Sequence[int]
) -> Generator[None, None, Rows]:
    """The same, in forwards of these widths; their rows."""
    rows, rest = [], iter(tokens)
    for width in widths:
        piece = list(islice(rest, width))
        rows.append(backend.forward([Span(sequence, piece, len(piece))]).rows(0, len(piece)))
        yield
    return np.concatenate(rows)


def _change(rows: Rows, reference: Rows) -> float:
    """The largest change, over all rows, in the distance of two of a row's best tokens, or in one of
    them: a repetition penalty multiplies logits, and so turns a common shift into a distance."""
    best = np.argpartition(reference, -PLAUSIBLE, axis=-1)[:, -PLAUSIBLE:]
    moved = np.take_along_axis(rows, best, -1) - np.take_along_axis(reference, best, -1)
    return float(max(np.ptp(moved, axis=-1).max(), np.abs(moved).max()))
