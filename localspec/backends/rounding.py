"""The amount by which rounding moves a loaded model's logits, measured on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from localspec.backends.base import ANY_WIDTH, Backend, Rows, Span

CONTEXTS = (48, 320)
"""lengths of the prompts that are probed, in tokens: attention sums differently over short and long ones"""
ENOUGH_S = 1.0
"""a model whose probe takes longer is not probed while it is loaded, but later, when idle"""
WIDTHS = 2, 3, 4, 5, 8
"""widths of the wide forwards that are probed: kernels change with the number of rows"""
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
"""places at which the probed widths are tried again, each over cells of 1-wide forwards: rows may be equal by
chance, four rows of Q4_K were in 3 of 8 cases"""
LONG = 256
"""tokens of a prompt that is long enough to probe its pieces: kernels change with the length, too"""
PLAUSIBLE = 32
"""number of a row's best tokens that are compared: others are never chosen"""
SAFETY = 2.0
T = TypeVar("T")
TINY = 1e-9
"""the change recorded where rows differ, though in no plausible token"""


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
"""used until a model has been probed to the end: more than any kernel was seen to move a row of a round"""


def measure_rounding(backend: Backend, *, within_s: float = ENOUGH_S) -> Rounding | None:
    """Probe a model, with all its sequences closed; None if ``within_s`` seconds were not enough."""
    steps, started = Probe(backend).steps(), time.perf_counter()
    while time.perf_counter() - started < within_s:
        try:
            next(steps)
        except StopIteration as end:
            found: Rounding = end.value
            return found
    steps.close()
    return None


def set_rounding(backend: Backend, rounding: Rounding) -> None:
    """Write the measured values into the backend's capabilities."""
    backend.capabilities = replace(backend.capabilities, **rounding._asdict())


class Probe:
    """The measurement of one model's rounding, a step per forward.

    It is made of units of at most 35 forwards or so, each on a sequence of its own. Closing :meth:`steps`
    frees that sequence; the results of finished units are kept, and the next :meth:`steps` continue behind
    them: a model whose forwards take 0.2 s is measured in pauses of 7 s.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._found: dict[tuple[int, str], Any] = {}
        """results of finished units, by the context's length and the unit's name"""

    def steps(self) -> Generator[None, None, Rounding]:
        """Measure what is not measured yet.

        The reference rows are computed over a prompt fed at once and then one token at a time. Three kinds of
        rows are compared with them: rows of wider forwards, 1-wide rows over cells that wider forwards wrote,
        and 1-wide rows over a prompt fed in other pieces. The measure is the change in the distance between
        two plausible tokens. A few dozen rows do not show the largest change, hence the factor ``SAFETY``: of
        31,840 rows of the bundled F16 model 3 moved by more than 1.5 times as much. Where activations are
        quantised, a change in the last bit moves a logit by a millionth or, if it crosses a step, by 0.2, in
        either kind of row: so both bounds are the largest change of all.
        A width is exact if every number of every row was equal to the bit, at all of ``PLACES``; batches are
        exact if the same holds for the rows of two sequences together. The text fed is this file: natural
        enough, and always there. Raises :class:`EngineBusy` where no sequence is free.
        """
        limits = self._backend.capabilities
        longest = min(limits.n_ctx - STEPS - AFTER, limits.max_batch)
        text = self._backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
        wide = drift = 0.0
        exact, exact_batches, alike = set(WIDTHS), True, _Alike(True, True, True, True)
        for n in sorted({min(n, longest) for n in CONTEXTS}):
            found = yield from self._at(n, text[: n + STEPS + AFTER])
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

    def _at(self, n: int, tokens: list[int]) -> Generator[None, None, _Changes]:
        """Measure the changes after a prompt of ``n`` tokens; the rows of its units are then dropped."""
        if (n, "all") in self._found:
            all_of_them: _Changes = self._found[n, "all"]
            return all_of_them
        backend, after = self._backend, tokens[n : n + AFTER]
        plain = partial(_behind, backend, tokens, n, [1] * STEPS)
        reference, reference_after = yield from self._unit(n, "reference", plain)
        exact, changed = set(WIDTHS), 0.0
        for place in PLACES:
            widths = partial(_exact_widths, backend, (tokens, n, place), frozenset(exact), reference)
            still, most = yield from self._unit(n, f"widths at {place}", widths)
            exact, changed = exact & still, max(changed, most)
        batched = yield from self._unit(n, "batched", partial(_batched, backend, (tokens, n), reference))
        compared = partial(_wide, backend, (tokens, n), (reference, reference_after))
        wide, drift = yield from self._unit(n, "wide", compared)
        digests = []
        for split in ((n,), *LONG_PIECES, SHORT_PIECES, EVEN_PIECES, ODD_PIECES):
            pieces = partial(_in_pieces, backend, tokens[:n], split, after)
            digests.append((yield from self._unit(n, f"pieces {split}", pieces)))
        found = _Changes(max(changed, wide), batched, drift, exact, _alike(digests))
        self._found = {key: kept for key, kept in self._found.items() if key[0] != n} | {(n, "all"): found}
        return found

    def _unit(
        self, n: int, name: str, work: Callable[[int], Generator[None, None, T]]
    ) -> Generator[None, None, T]:
        """Return what ``work`` returns for an empty sequence; finished work is not repeated."""
        if (n, name) not in self._found:
            sequence = self._backend.open()
            try:
                self._found[n, name] = yield from work(sequence)
            finally:
                self._backend.close(sequence)
        found: T = self._found[n, name]
        return found


class _Alike(NamedTuple):
    """Ways to split a prompt into pieces: True if the probed ones all gave the same rows, bit for bit.

    ``all``: any pieces; ``short``: any of up to :data:`SHORT_PIECE` tokens; ``even``: short ones of a
    multiple of :data:`STEP` tokens; ``long``: those of a multiple of :data:`TILE` tokens.
    """

    all: bool
    short: bool
    even: bool
    long: bool


class _Changes(NamedTuple):
    """Changes, in logits, of the rows of wide forwards, of two sequences together (``batched``), and over
    cells that wide forwards wrote (``drift``); the widths that changed nothing, and the ways to split a
    prompt that did."""

    wide: float
    batched: float
    drift: float
    exact: set[int]
    alike: _Alike


def _longest_piece(alike: _Alike, drift: float, exact: set[int]) -> int:
    """Return the longest piece up to which all pieces give the same cells; 1 also where a wide forward
    changed a row, because pieces may then do so, too: equal cells are chance."""
    if alike.all and drift == 0.0:
        return ANY_WIDTH
    return SHORT_PIECE if alike.short and len(exact) == len(WIDTHS) else 1


def _widest(exact: set[int]) -> int:
    """Return the widest forward up to which nothing changed. One that changes no row changes no cell,
    because every row attends to the cells of its own forward."""
    return max((1, *takewhile(exact.__contains__, WIDTHS)))


def _behind(
    backend: Backend, tokens: list[int], n: int, widths: Sequence[int], sequence: int
) -> Generator[None, None, tuple[Rows, Rows]]:
    """The rows of ``STEPS`` tokens behind the first ``n``, in forwards of ``widths``; 1-wide rows after."""
    yield from _fill(backend, sequence, tokens[:n], n)
    rows = yield from _feed(backend, sequence, tokens[n : n + STEPS], widths)
    after = yield from _feed(backend, sequence, tokens[n + STEPS :], [1] * AFTER)
    return rows, after


def _wide(
    backend: Backend, where: tuple[list[int], int], reference: tuple[Rows, Rows], sequence: int
) -> Generator[None, None, tuple[float, float]]:
    """Return the changes in rows of forwards of ``WIDTHS``, and in 1-wide rows over the cells they wrote."""
    wide, after = yield from _behind(backend, *where, WIDTHS, sequence)
    return _change(wide, reference[0]), _change(after, reference[1])


def _in_pieces(
    backend: Backend, tokens: list[int], widths: Sequence[int], after: list[int], sequence: int
) -> Generator[None, None, bytes]:
    """Return a digest of the last row of ``tokens``, fed in pieces of ``widths``, and the rows of ``after``.

    Without the former for long pieces: no prompt ends in one where there is more than one kind of them.
    """
    last = yield from _read(backend, sequence, tokens, widths, int(widths not in LONG_PIECES))
    rows = yield from _feed(backend, sequence, after, [1] * len(after))
    return hashlib.sha256(np.concatenate([last, rows]).tobytes()).digest()


def _alike(digests: Sequence[bytes]) -> _Alike:
    """Return which ways to split a prompt gave the same rows, bit for bit.

    ``digests`` are those of :meth:`Probe._at`, one for each split: the whole prompt at once, the two
    :data:`LONG_PIECES`, :data:`SHORT_PIECES`, :data:`EVEN_PIECES` and :data:`ODD_PIECES`.
    """
    once, one_long, other_long, short, even, odd = digests
    is_short_alike, is_even_alike, is_long_alike = short == odd, short == even, one_long == other_long
    return _Alike(
        all=is_short_alike and is_even_alike and is_long_alike and short == once,
        short=is_short_alike and is_even_alike,
        even=is_even_alike,
        long=is_long_alike,
    )


def _read(
    backend: Backend, sequence: int, tokens: list[int], widths: Sequence[int], rows: int
) -> Generator[None, None, Rows]:
    """Feed ``tokens`` in pieces of ``widths``, repeated as needed; return the last ``rows``."""
    at, pieces = 0, cycle(widths)
    while at < len(tokens):
        piece = tokens[at : at + next(pieces)]
        at += len(piece)
        logits = backend.forward([Span(sequence, piece, rows * (at == len(tokens)))])
        yield
    return logits.rows(0, rows)


def _exact_widths(
    backend: Backend,
    where: tuple[list[int], int, int],
    widths: Collection[int],
    reference: Rows,
    sequence: int,
) -> Generator[None, None, tuple[set[int], float]]:
    """Return those of ``widths`` that give the rows of ``reference``, and the largest change at the others.

    ``where``: tokens, how many of them are fed at once, and how many after these one by one.
    """
    tokens, n, place = where
    at, exact, changed = n + place, set(widths), 0.0
    yield from _fill(backend, sequence, tokens[:n], n)
    yield from _fill(backend, sequence, tokens[n:at], 1)
    backend.mark(sequence)
    for width in sorted(widths):
        yield from _go_back(backend, sequence, tokens[:at], n)
        rows = yield from _feed(backend, sequence, tokens[at : at + width], [width])
        end = at + width
        if backend.capabilities.replays and place + width < STEPS:
            # A state may be computed otherwise than the rows beside it: the next row shows it.
            after = yield from _feed(backend, sequence, tokens[end : end + 1], [1])
            rows = np.concatenate([rows, after])
        expected = reference[place : place + len(rows)]
        if not np.array_equal(rows, expected):
            exact.remove(width)
            changed = max(changed, _change(rows, expected), TINY)
    return exact, changed


def _batched(
    backend: Backend, where: tuple[list[int], int], reference: Rows, sequence: int
) -> Generator[None, None, float]:
    """Return the change in rows whose forward is shared by another sequence with as many tokens, or fewer."""
    if not backend.capabilities.batches or backend.capabilities.max_sequences < 2:
        return 0.0
    tokens, n = where
    yield from _fill(backend, sequence, tokens[:n], n)
    steps = tokens[n : n + STEPS]
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
    """Go back to ``tokens``; feed again what the backend did not keep, ``n`` at once and then one by one."""
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
    """Feed ``tokens`` in forwards of these widths and return all their rows."""
    rows, rest = [], iter(tokens)
    for width in widths:
        piece = list(islice(rest, width))
        rows.append(backend.forward([Span(sequence, piece, len(piece))]).rows(0, len(piece)))
        yield
    return np.concatenate(rows)


def _change(rows: Rows, reference: Rows) -> float:
    """Return the largest change, over all rows, in the distance of two of a row's best tokens, or in the
    logit of one: a repetition penalty multiplies logits, which turns a common shift into a distance."""
    best = np.argpartition(reference, -PLAUSIBLE, axis=-1)[:, -PLAUSIBLE:]
    moved = np.take_along_axis(rows, best, -1) - np.take_along_axis(reference, best, -1)
    return float(max(np.ptp(moved, axis=-1).max(), np.abs(moved).max()))
