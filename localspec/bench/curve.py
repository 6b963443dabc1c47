"""The cost of a forward by its width: measured on a loaded model, or given by hand."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path

from localspec.backends.base import Backend, Span
from localspec.bench.results import Curve
from localspec.errors import InvalidOptions

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 21)
CONTEXT = 512
"""tokens before the timed forwards, or fewer where the model's context is shorter"""
REPEATS = 7


class CostLine:
    """Seconds of a forward of any width: straight lines between the known widths, and beyond them."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        if not seconds or min(seconds) != 1 or min(seconds.values()) <= 0:
            raise InvalidOptions(
                "the costs must be positive and include width 1", "Write --cost 1=12,2=20,5=35."
            )
        self._widths = sorted(seconds)
        self._seconds = [seconds[width] for width in self._widths]

    def __call__(self, width: int) -> float:
        """Seconds of a forward over ``width`` ≥ 1 tokens."""
        widths, seconds = self._widths, self._seconds
        if len(widths) == 1:
            return seconds[0]
        right = min(max(bisect_left(widths, width), 1), len(widths) - 1)
        left = right - 1
        slope = (seconds[right] - seconds[left]) / (widths[right] - widths[left])
        return seconds[left] + slope * (width - widths[left])


EXAMPLE = CostLine({1: 0.0120, 2: 0.0274, 4: 0.0320, 5: 0.0416, 8: 0.0439, 16: 0.0720})
"""two cores of x86, a model of half a billion parameters at Q8_0"""


def parse_costs(text: str) -> CostLine:
    """``1=12,2=20.5``: milliseconds by width. Raises :class:`InvalidOptions`."""
    try:
        pairs = [item.split("=") for item in text.split(",")]
        return CostLine({int(width): float(ms) / 1000 for width, ms in pairs})
    except ValueError:
        raise InvalidOptions(f"{text!r} is not a list of costs", "Write --cost 1=12,2=20,5=35.") from None


def measure_curve(backend: Backend, role: str, tokens: list[int]) -> Curve:
    """Time forwards of :data:`WIDTHS` behind the same context, the widths interleaved; medians.

    ``tokens`` is any text of the model, repeated as often as needed; that of this file where it is empty.
    """
    limits = backend.capabilities
    widths = [width for width in WIDTHS if width <= limits.max_batch]
    context = min(CONTEXT, limits.n_ctx - max(widths))
    text = tokens or backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
    tokens = list(islice(cycle(text), context + max(widths)))
    timings: dict[int, list[float]] = {width: [] for width in widths}
    sequence = backend.open()
    try:
        for start in range(0, context, limits.max_batch):
            backend.forward([Span(sequence, tokens[start : min(start + limits.max_batch, context)], 0)])
        for width, spent in _timed(backend, sequence, tokens[context:], widths):
            timings[width].append(spent)
    finally:
        backend.close(sequence)
    return Curve(role, context, {width: statistics.median(spent) for width, spent in timings.items()})


def _timed(
    backend: Backend, sequence: int, tokens: list[int], widths: list[int]
) -> Iterator[tuple[int, float]]:
    """(width, seconds) of every forward but each width's first, which only warms up."""
    before = backend.length(sequence)
    for repeat in range(REPEATS + 1):
        for width in widths:
            started = time.perf_counter()
            backend.forward([Span(sequence, tokens[:width], width)]).argmax()
            spent = time.perf_counter() - started
            backend.truncate(sequence, before)
            if repeat:
                yield width, spent
