"""How far rounding moves a loaded model's logits, measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import cycle, islice, takewhile
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
STEPS, AFTER = sum(WIDTHS), 9
SHORT_PIECE, STEP, TILE = 56, 8, 64
"""tokens of the longest short piece of a prompt; short and long pieces are multiples of the others"""
LONGEST_PROBED = 256
"""tokens of the longest piece that is probed"""
LONG_PIECES = (64, 256), (192, 128)
SHORT_PIECES = 24, *[SHORT_PIECE] * 5, 16
"""with few tokens at the end: a backend may compute the row of a wide piece in a forward of its own, and so
the cells beside it"""
EVEN_PIECES = tuple(range(STEP, SHORT_PIECE + 1, STEP))
ODD_PIECES = 1, 2, 3, 5, 7, 13, 1, 31, 55, 1, 9, 29, 4, 23, 12, 37
"""a prompt is probed in these: kernels for few rows may agree where those for many do not, and some take
rows by fours and eights"""
PLACES = range(STEPS - max(WIDTHS), 3, -2)
"""where the probed widths are tried once more, each over cells of 1-wide forwards: a forward may be equal
by chance, four rows of Q4_K were in 3 of 8 cases"""
LONG = 256
"""a prompt in pieces was probed for good if it was so long: kernels change with the length, too"""
PLAUSIBLE = 32
"""how many of a row's best tokens are compared: others are never chosen"""
SAFETY = 2.0
TINY = 1e-9
"""a change that is seen in no plausible token, but is one"""


class Rounding(NamedTuple):
    """The fields of :class:`Capabilities` that are measured; 0 and True: rows are equal to the bit."""

    margin_bound: float
    drift_bound: float
    exact_width: int
    exact_piece: int
    exact_batches: bool
    even_short: bool = False
    even_long: bool = False


PRESUMED = Rounding(0.5, 0.5, exact_width=1, exact_piece=1, exact_batches=False)
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
    hence the factor: of 31,840 rows of the bundled F16 model 3 moved by more than 1.5 times as much. Where
    activations are quantised a change in the last bit is a millionth of a logit, or, where it crosses a step,
    0.2 logits, in either kind of row: the largest change of all is the bound of both.
    A width is exact where every number of every row was equal to the bit, in all of ``PLACES``; batches
    are where that holds for the rows of two sequences together. The text is this file: natural enough, and
    always there. Raises :class:`EngineBusy` where no sequence is free.
    """
    limits = backend.capabilities
    longest = min(limits.n_ctx - STEPS - AFTER, limits.max_batch)
    text = backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
    wide = drift = 0.0
    exact, exact_batches, alike = set(WIDTHS), True, _Alike(True, True, True, True)
    for n in sorted({min(n, longest) for n in CONTEXTS}):
        found = yield from _probe(backend, text[: n + STEPS + AFTER], n)
        wide, drift = max(wide, found.wide), max(drift, found.drift)
        alike = _Alike(*map(min, alike, found.alike))
        exact &= found.exact
        exact_batches &= found.batched == 0.0
        wide = max(wide, found.batched)
    largest = SAFETY * max(wide, drift)
    return Rounding(
        largest,
        largest,
        exact_width=ANY_WIDTH if largest == 0.0 else _widest(exact),
        exact_piece=_longest_piece(alike, drift, exact) if longest >= LONG else 1,
        exact_batches=exact_batches,
        even_short=alike.even and longest >= LONG,
        even_long=alike.long and longest >= LONG,
    )


class _Alike(NamedTuple):
    """Ways to split a prompt into pieces: True where the probed ones all gave the same rows, bit for bit.

    ``all``: any pieces; ``short``: any of up to :data:`SHORT_PIECE` tokens; ``even``: short ones of a
    multiple of :data:`STEP` tokens; ``long``: those of a multiple of :data:`TILE` tokens.
    """

    all: bool
    short: bool
    even: bool
    long: bool


class _Changes(NamedTuple):
    """In the rows of wide forwards, of two sequences together, and over the cells that wide forwards wrote;
    the widths at which nothing changed, and the pieces of a prompt that change nothing."""

    wide: float
    batched: float
    drift: float
    exact: set[int]
    alike: _Alike


def _longest_piece(alike: _Alike, drift: float, exact: set[int]) -> int:
    """The longest piece up to which all pieces give the same cells. Where wide forwards change rows, so may
    pieces: cells that were alike are so by chance."""
    if alike.all and drift == 0.0:
        return ANY_WIDTH
    return SHORT_PIECE if alike.short and len(exact) == len(WIDTHS) else 1


def _widest(exact: set[int]) -> int:
    """The widest forward up to which nothing changed: one that changes no row changes no cell, because
    every row looks at its own cells."""
    return max((1, *takewhile(exact.__contains__, WIDTHS)))


def _probe(backend: Backend, tokens: list[int], n: int) -> Generator[None, None, _Changes]:
    """The changes behind ``n`` tokens."""
    steps, after = tokens[n : n + STEPS], tokens[n + STEPS :]
    sequence = backend.open()
    try:
        yield from _fill(backend, sequence, tokens[:n], n)
        backend.mark(sequence)
        reference = yield from _feed(backend, sequence, steps, [1] * STEPS)
        reference_after = yield from _feed(backend, sequence, after, [1] * AFTER)
        exact, changed = yield from _exact_widths(backend, sequence, tokens[: n + STEPS], reference)
        yield from _go_back(backend, sequence, tokens[:n], n)
        batched = yield from _batched(backend, sequence, steps, reference)
        yield from _go_back(backend, sequence, tokens[:n], n)
        wide = yield from _feed(backend, sequence, steps, WIDTHS)
        drifted = yield from _feed(backend, sequence, after, [1] * AFTER)
        alike = yield from _alike(backend, sequence, tokens[:n], steps[:AFTER])
    finally:
        backend.close(sequence)
    return _Changes(
        wide=max(changed, _change(wide, reference)),
        batched=batched,
        drift=_change(drifted, reference_after),
        exact=exact,
        alike=alike,
    )


def _alike(
    backend: Backend, sequence: int, tokens: list[int], after: list[int]
) -> Generator[None, None, _Alike]:
    """Return the ways to split ``tokens`` that change no bit of the rows of ``after``.

    Nor of the last row of ``tokens``, but in long pieces, in which no prompt ends.
    """
    rows = []
    for widths in ((len(tokens),), *LONG_PIECES, SHORT_PIECES, EVEN_PIECES, ODD_PIECES):
        backend.truncate(sequence, 0)
        # No prompt ends in a long piece, where there is more than one kind of them.
        last = yield from _read(backend, sequence, tokens, widths, int(widths not in LONG_PIECES))
        rows.append(np.concatenate([last, (yield from _feed(backend, sequence, after, [1] * len(after)))]))
    once, one_long, other_long, short, even, odd = rows
    is_short_alike = np.array_equal(short, odd)
    is_even_alike = np.array_equal(short, even)
    is_long_alike = np.array_equal(one_long, other_long)
    return _Alike(
        all=is_short_alike and is_even_alike and is_long_alike and np.array_equal(short, once),
        short=is_short_alike and is_even_alike,
        even=is_even_alike,
        long=is_long_alike,
    )


def _read(
    backend: Backend, sequence: int, tokens: list[int], widths: Sequence[int], rows: int
) -> Generator[None, None, Rows]:
    """Feed ``tokens`` in pieces of ``widths``, over and over; the last ``rows``."""
    at, pieces = 0, cycle(widths)
    while at < len(tokens):
        piece = tokens[at : at + next(pieces)]
        at += len(piece)
        logits = backend.forward([Span(sequence, piece, rows * (at == len(tokens)))])
        yield
    return logits.rows(0, rows)


def _exact_widths(
    backend: Backend, sequence: int, tokens: list[int], reference: Rows
) -> Generator[None, None, tuple[set[int], float]]:
    """Return the widths that give the rows of ``reference``, of the last of ``tokens``, in all places, and
    the largest change at the others. The last place comes first: what stands behind a place is lost."""
    start, exact, changed = len(tokens) - STEPS, set(WIDTHS), 0.0
    for place in PLACES:
        at = start + place
        for width in sorted(exact):
            yield from _go_back(backend, sequence, tokens[:at], start)
            rows = yield from _feed(backend, sequence, tokens[at : at + width], [width])
            end = place + width
            if backend.capabilities.replays and end < STEPS:
                # A state may be computed otherwise than the rows beside it: the next row shows it.
                after = yield from _feed(backend, sequence, tokens[start + end : start + end + 1], [1])
                rows = np.concatenate([rows, after])
            expected = reference[place : place + len(rows)]
            if not np.array_equal(rows, expected):
                exact.remove(width)
                changed = max(changed, _change(rows, expected), TINY)
    return exact, changed


def _batched(
    backend: Backend, sequence: int, steps: list[int], reference: Rows
) -> Generator[None, None, float]:
    """The change in rows whose forward another sequence shares: with as many tokens, and with fewer."""
    if not backend.capabilities.batches or backend.capabilities.max_sequences < 2:
        return 0.0
    other, changed = backend.fork(sequence, backend.length(sequence)), 0.0
    try:
        for start, stop in ((0, 1), (1, 4)):
            spans = [
                Span(sequence, steps[start:stop], stop - start),
                Span(other, steps[start : start + 1], 1),
            ]
            rows = backend.forward(spans).rows(0, stop - start + 1)
            expected = np.concatenate([reference[start:stop], reference[start : start + 1]])
            if not np.array_equal(rows, expected):
                changed = max(changed, _change(rows, expected), TINY)
            yield
    finally:
        backend.close(other)
    return changed


def _go_back(backend: Backend, sequence: int, tokens: list[int], n: int) -> Generator[None, None, None]:
    """Back to ``tokens``; what the backend could not keep is fed again, ``n`` at once and then one by one."""
    kept = backend.truncate(sequence, len(tokens))
    if kept < n:
        yield from _fill(backend, sequence, tokens[kept:n], n)
    yield from _fill(backend, sequence, tokens[max(kept, n) :], 1)


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
