"""The forwards whose rows equal those of plain decoding to the bit, and their costs, found on this machine.

A forward of several tokens may use other kernels than one of a single token, which add in another order. That
differs by type of weights, device and build of a backend's library, so it is tried, once per model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from localspec.backends.base import Backend, Logits, Span

CONTEXT = 264
"""tokens before the compared rows if the backend ``splits_contexts``: behind 256, kernels are others"""
ENOUGH_S = 1.0
"""a model whose check takes longer is not checked while it is loaded, but later, when idle"""
PIECE = 32
"""tokens of that context fed at once: a new request waits for no more than these"""
WIDTHS = 2, 3, 4, 5, 8, 16, 21
"""widths that are tried: kernels and costs change with them"""
PLACES = 0, 4, 8, 13
"""numbers of 1-wide forwards before a wide one: four rows of Q4_K are equal by chance in 3 of 8 cases"""
STEPS = PLACES[1] + max(WIDTHS)
SETTLING = 2
"""forwards of a width on a device before one is timed: CUDA replays a graph from the third like it on. On an
H100, a model of 1.5B in 4 bits took 5.0 ms for two tokens in the first of them, and 2.2 in the third"""
BATCH = 0
"""stands for the forwards of two sequences, among widths"""


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


Observe = Callable[[int, int, float], None]
"""learns the cost of a forward of so many tokens, after so many tokens, in so many seconds"""


class Probe:
    """The check of one model, a step per forward, on a sequence of its own.

    Closing :meth:`steps` frees that sequence; the rows of wide forwards are kept, and the next :meth:`steps`
    try what is missing. ``observe`` learns from each forward, at the end.
    """

    def __init__(self, backend: Backend, observe: Observe = lambda width, context, seconds: None) -> None:
        self._backend, self._observe = backend, observe
        limits = backend.capabilities
        self._is_on_device = limits.offloaded_bytes > 0
        self._widths = [width for width in WIDTHS if width <= limits.max_batch]
        context = CONTEXT if limits.splits_contexts else sum(self._widths)
        self._n = max(1, min(context, limits.n_ctx - STEPS - 1))
        self._ends = [self._n]
        """of the pieces of the context: the last ones are as wide as the widths tried"""
        for width in reversed(self._widths):
            if width < self._ends[0]:
                self._ends.insert(0, self._ends[0] - width)
        self._ends = [*range(PIECE, self._ends[0], PIECE), *self._ends]
        # The text fed is this file: natural enough, and always there.
        text = Path(__file__).read_text(encoding="utf-8")
        self._tokens = backend.vocabulary.encode(text, special=False)[: self._n + STEPS + 1]
        self._tried: set[tuple[int, int]] = set()
        """widths, with the places where they were tried"""
        self._rows: set[tuple[int, int, int]] = set()
        """widths, with the places and the hashes of the rows that they gave"""
        self._unequal: set[int] = set()
        self._times: list[tuple[int, int, float]] = []

    def steps(self) -> Generator[None, None, Rounding]:
        """Check what is not checked yet.

        The reference rows are those of 1-wide forwards. A width is exact if every number of every row of such
        forwards equals the reference to the bit, at all of ``PLACES``, and all smaller widths are exact;
        batches are exact if the same holds for the rows of two sequences together. All widths are timed
        twice, once while the context is read. Raises :class:`EngineBusy` where no sequence is free.
        """
        sequence = self._backend.open()
        try:
            yield from self._try_batches(sequence)
            for place in range(STEPS + 1):
                if place in PLACES:
                    yield from self._try_widths(sequence, place)
                if place > PLACES[-1] + max((0, *self._equal)):
                    break
                yield from self._go_to(sequence, place)
                (reference,) = yield from self._forward(sequence, 1)
                self._unequal.update(
                    width for width, at, row in self._rows if at == place and row != reference
                )
        finally:
            self._backend.close(sequence)
        # Not earlier: the first forwards after a load are slow, and a request may come between.
        for each in self._times:
            self._observe(*each)
        return Rounding(max((1, *self._equal)), BATCH not in self._unequal)

    @property
    def _equal(self) -> list[int]:
        """The widths that are exact so far."""
        return list(takewhile(lambda width: width not in self._unequal, self._widths))

    def _go_to(self, sequence: int, place: int) -> Generator[None, None, None]:
        """Feed what is missing before ``place``, by the same forwards each time: cells round as those do."""
        for end in (*self._ends, *range(self._n + 1, self._n + place + 1)):
            if (length := self._backend.length(sequence)) < end:
                yield from self._forward(sequence, end - length)

    def _try_widths(self, sequence: int, place: int) -> Generator[None, None, None]:
        for width in self._equal:
            if place + width <= STEPS and (width, place) not in self._tried:
                for left in reversed(range(1 + SETTLING * self._is_on_device)):
                    yield from self._go_to(sequence, place)
                    self._backend.mark(sequence)
                    rows = yield from self._forward(sequence, width, timed=not left)
                    if self._backend.capabilities.replays:
                        # A state may be computed otherwise than the rows beside it: the next row shows it.
                        rows += yield from self._forward(sequence, 1)
                    self._backend.truncate(sequence, self._n + place)
                self._rows.update((width, at, row) for at, row in enumerate(rows, place))
                self._tried.add((width, place))

    def _try_batches(self, sequence: int) -> Generator[None, None, None]:
        """Try forwards that another sequence shares, with as many tokens or fewer."""
        backend, steps = self._backend, self._tokens[self._n :]
        limits = backend.capabilities
        if not limits.batches or limits.max_sequences < 2 or (BATCH, 0) in self._tried:
            return
        yield from self._go_to(sequence, 0)
        backend.mark(sequence)
        other = backend.fork(sequence, self._n)
        try:
            for start, stop in ((0, 1), (1, 4)):
                mine = Span(sequence, steps[start:stop], stop - start)
                logits = backend.forward([mine, Span(other, steps[start : start + 1], 1)])
                places, rows = (*range(start, stop), start), _hashes(logits, stop - start + 1)
                self._rows.update((BATCH, at, row) for at, row in zip(places, rows, strict=True))
                yield
        finally:
            backend.close(other)
        self._tried.add((BATCH, 0))
        backend.truncate(sequence, self._n)

    def _forward(self, sequence: int, width: int, *, timed: bool = True) -> Generator[None, None, list[int]]:
        at, started = self._backend.length(sequence), time.perf_counter()
        tried = width == 1 or width in self._widths
        logits = self._backend.forward([Span(sequence, self._tokens[at : at + width], tried * width)])
        rows = []
        if tried:
            logits.argmax()  # waits for the device
            if timed:
                self._times.append((width, at, time.perf_counter() - started))
            rows = _hashes(logits, width)
        yield
        return rows


def _hashes(logits: Logits, rows: int) -> list[int]:
    return [hash(row.tobytes()) for row in logits.rows(0, rows)]
