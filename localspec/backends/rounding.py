"""The forwards whose rows equal those of plain decoding to the bit, and their costs, found on this machine.

A forward of several tokens may use other kernels than one of a single token, which add in another order. That
differs by type of weights, device and build of a backend's library, so it is tried, once per model.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from localspec.backends.base import Backend, Rows, Span

CONTEXT = 264
"""tokens before the rows that are compared: behind more than 256, attention has other kernels"""
ENOUGH_S = 1.0
"""a model whose check takes longer is not checked while it is loaded, but later, when idle"""
PIECE = 32
"""tokens of that context fed at once: a new request waits for no more than these"""
WIDTHS = 2, 3, 4, 5, 8, 16, 21
"""widths that are tried, the last one of the longest draft: kernels and costs change with them"""
PLACES = 0, 4, 8, 13
"""numbers of 1-wide forwards before a wide one: rows may be equal by chance, four rows of Q4_K are in 3 of 8
cases"""
TIMED = PLACES[:2]
"""places at which all widths are timed"""
STEPS = TIMED[-1] + max(WIDTHS)


class Rounding(NamedTuple):
    """The fields of :class:`Capabilities` that are measured."""

    exact_width: int
    exact_batches: bool


PRESUMED = Rounding(exact_width=1, exact_batches=False)
"""used until a model has been checked to the end"""


def measure_rounding(backend: Backend, *, within_s: float = ENOUGH_S) -> Rounding | None:
    """Check a model, with all its sequences closed; None if ``within_s`` seconds were not enough."""
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


def read(backend: Backend, sequence: int, tokens: list[int]) -> Generator[None, None, None]:
    """Feed ``tokens`` in small pieces, one a step."""
    for at in range(0, len(tokens), PIECE):
        backend.forward([Span(sequence, tokens[at : at + PIECE], 0)])
        yield


class Observe(Protocol):
    """A function that learns the cost of a forward."""

    def __call__(self, width: int, context: int, seconds: float) -> None: ...


class Probe:
    """The check of one model, a step per forward, on a sequence that begins with ``CONTEXT`` tokens.

    Closing :meth:`steps` frees that sequence; the results of finished parts are kept, and the next
    :meth:`steps` continue behind them. ``observe`` gets (width, tokens before, seconds) of each forward.
    """

    def __init__(self, backend: Backend, observe: Observe = lambda width, context, seconds: None) -> None:
        self._backend, self._observe = backend, observe
        limits = backend.capabilities
        self._n = max(1, min(CONTEXT, limits.n_ctx - STEPS - 1))
        self._widths_tried = [width for width in WIDTHS if width <= limits.max_batch]
        # The text fed is this file: natural enough, and always there.
        text = Path(__file__).read_text(encoding="utf-8")
        self._tokens = backend.vocabulary.encode(text, special=False)[: self._n + STEPS + 1]
        self._found: dict[str, Any] = {}

    def steps(self) -> Generator[None, None, Rounding]:
        """Check what is not checked yet.

        The reference rows are those of 1-wide forwards. A width is exact if every number of every row of such
        forwards equals the reference to the bit, at all of ``PLACES``, and all smaller widths are exact;
        batches are exact if the same holds for the rows of two sequences together. Raises
        :class:`EngineBusy` where no sequence is free.
        """
        sequence = self._backend.open()
        try:
            yield from read(self._backend, sequence, self._tokens[: self._n])
            for part in (self._reference, self._batches, self._widths):
                if part.__name__ not in self._found:
                    self._backend.mark(sequence)
                    self._found[part.__name__] = yield from part(sequence)
                    yield from self._go_to(sequence, 0)
        finally:
            self._backend.close(sequence)
        exact = self._found["_widths"]
        return Rounding(max((1, *takewhile(exact.__contains__, WIDTHS))), self._found["_batches"])

    def _reference(self, sequence: int) -> Generator[None, None, Rows]:
        rows = []
        for place in range(STEPS + 1):
            rows.append((yield from self._rows(sequence, place, 1)))
        return np.concatenate(rows)

    def _widths(self, sequence: int) -> Generator[None, None, set[int]]:
        """Return the widths whose rows are those of the reference at all places."""
        exact, replays = set(self._widths_tried), self._backend.capabilities.replays
        for place in PLACES:
            yield from self._go_to(sequence, place)
            self._backend.mark(sequence)
            tried = self._widths_tried if place in TIMED else sorted(exact)
            for width in (each for each in tried if place + each <= STEPS):
                rows = yield from self._rows(sequence, place, width)
                if replays:
                    # A state may be computed otherwise than the rows beside it: the next row shows it.
                    after = yield from self._rows(sequence, place + width, 1)
                    rows = np.concatenate([rows, after])
                yield from self._go_to(sequence, place)
                if not np.array_equal(rows, self._expected(place, len(rows))):
                    exact.discard(width)
        return exact

    def _batches(self, sequence: int) -> Generator[None, None, bool]:
        """Return True if rows are equal in a forward shared by another sequence, with as many tokens or
        fewer."""
        backend, steps = self._backend, self._tokens[self._n :]
        if not backend.capabilities.batches or backend.capabilities.max_sequences < 2:
            return True
        other = backend.fork(sequence, backend.length(sequence))
        try:
            for start, stop in ((0, 1), (1, 4)):
                mine = Span(sequence, steps[start:stop], stop - start)
                rows = backend.forward([mine, Span(other, steps[start : start + 1], 1)]).rows(
                    0, stop - start + 1
                )
                yield
                expected = [self._expected(start, stop - start), self._expected(start, 1)]
                if not np.array_equal(rows, np.concatenate(expected)):
                    return False
        finally:
            backend.close(other)
        return True

    def _go_to(self, sequence: int, place: int) -> Generator[None, None, None]:
        """Go to ``place`` tokens behind the context; feed again what the backend did not keep."""
        at = min(self._n + place, self._backend.length(sequence))
        yield from read(self._backend, sequence, self._tokens[self._backend.truncate(sequence, at) : self._n])
        for each in range(self._backend.length(sequence) - self._n, place):
            yield from self._rows(sequence, each, 1)

    def _expected(self, place: int, count: int) -> Rows:
        rows: Rows = self._found["_reference"][place : place + count]
        return rows

    def _rows(self, sequence: int, place: int, width: int) -> Generator[None, None, Rows]:
        at, started = self._n + place, time.perf_counter()
        logits = self._backend.forward([Span(sequence, self._tokens[at : at + width], width)])
        logits.argmax()  # waits for the device
        self._observe(width, at, time.perf_counter() - started)
        rows = logits.rows(0, width)
        yield
        return rows
