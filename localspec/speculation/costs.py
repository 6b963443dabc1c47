"""The cost curve: seconds of a forward by its width and the length of the context, on this machine.

A forward of k+1 tokens takes longer than one of 1, by a factor that differs from machine to machine and
decides how much speculation can gain. It is measured when the machine is idle, and refined by every round.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

LEVEL_GAIN = 0.15
"""share of a change in a narrow forward's cost that is taken over: large, as the machine's load varies"""
RATIO_GAIN = 0.04
"""share of a change in a width's relative cost that is taken over once it is known"""
FIRST = 3
"""first forwards of a width, of which the fastest counts, before averages begin"""
CLIP = math.log(2.0)
"""the largest change taken from one forward: one of more than twice the expected time was held up"""
UNKNOWN_S = 0.01
"""seconds of a narrow forward before one was measured: only ratios matter then"""
FIRST_BUCKET = 1024
STALE = 0.01
WIDE = 64
"""a forward of more tokens is a piece of a prompt, and has a cost per token"""
KNOWN = 2
"""forwards of a width after which its cost counts as known"""
KEPT = ("level", "per_token", "ratios", "seen")
"""fields of a bucket that are kept between runs"""

PRIORS: tuple[tuple[str, Mapping[int, float]], ...] = (
    ("(gpu)", {2: 1.03, 4: 1.47, 5: 1.6, 8: 2.69, 16: 3.9, 32: 4.5}),
    ("F32", {2: 1.15, 4: 1.41, 5: 1.41, 8: 1.83, 16: 2.85, 32: 5.01}),
    ("F16", {2: 1.29, 4: 1.70, 5: 1.75, 8: 2.17, 16: 3.39, 32: 5.79}),
    ("Q8", {2: 2.28, 4: 2.67, 5: 3.47, 8: 3.66, 16: 6.0, 32: 10.9}),
    ("", {2: 1.62, 4: 2.53, 5: 3.22, 8: 4.53, 16: 7.21, 32: 12.3, 48: 17.3}),
)
"""relative costs measured on other machines, by a part of a model's description, which names its device or
precision: MLX on Apple's GPUs, then CPUs; the last one is for all others. Of two measurements the higher one
is listed."""

SHORTEST_S, LONGEST_S = 1e-7, 1e3
"""seconds of a forward that counts; the bounds of relative costs, too"""
Positive = Annotated[float, Meta(ge=SHORTEST_S, le=LONGEST_S)]
Width = Annotated[int, Meta(ge=1, le=WIDE)]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]


def prior_for(description: str) -> Mapping[int, float]:
    """Return the first table that fits a model ``description`` such as ``llama_cpp Q8_0``."""
    return next(ratios for name, ratios in PRIORS if name in description)


class CostCurve:
    """Seconds of a forward by its width in tokens, and by the length of the context.

    A bucket of context lengths holds a level, the seconds of a 1-wide forward, and ratios to it: when
    another program takes half of the machine, the level follows within a few rounds, and the ratios stay.
    ``unknown_s`` is the level before any forward was measured.
    """

    def __init__(self, description: str = "", *, unknown_s: float = UNKNOWN_S) -> None:
        self._prior = _Points({1: 1.0, **prior_for(description)})
        self._unknown = _Bucket(unknown_s)
        """stands for contexts of every length before a forward was measured"""
        self._buckets: dict[int, _Bucket] = {}

    def seconds(self, width: int, context: int = 0) -> float:
        """The expected seconds of a forward of ``width`` tokens after ``context`` tokens."""
        return self._nearest(context).seconds(self._prior, width)

    def at(self, context: int) -> Callable[[int], float]:
        """Return :meth:`seconds` by the width alone."""
        return partial(self._nearest(context).seconds, self._prior)

    def prefill_s(self) -> float:
        """The expected seconds per token of a prompt that is read in pieces of 64 or more."""
        return self._nearest(0).per_token or self.seconds(WIDE) / WIDE

    def line(self, context: int) -> list[float]:
        """Return :meth:`seconds` of all widths from 0 to 64 at once: item i is that of width i."""
        bucket = self._nearest(context)
        bucket.relative(1, self._prior)
        return [bucket.level * ratio for ratio in bucket.table]

    def observe(self, width: int, context: int, seconds: float) -> None:
        """Learn that a forward of ``width`` tokens after ``context`` tokens took ``seconds``."""
        if not SHORTEST_S <= seconds <= LONGEST_S or width < 1:
            return
        number = _bucket(context)
        bucket = self._buckets.get(number)
        if bucket is None:
            if not self._buckets and width > WIDE:
                return  # the time of a piece of a prompt says nothing about a round's
            bucket = self._buckets[number] = self._nearest(context).heir() if self._buckets else _Bucket(0.0)
        if width > WIDE:
            bucket.observe_piece(seconds / width)
            return
        bucket.observe(width, seconds, self._prior)

    def knows(self, width: int, context: int) -> bool:
        """Return True if forwards of this width were measured, in the nearest bucket of ``context``."""
        return self._nearest(context).seen.get(width, 0) >= KNOWN

    def widest(self, context: int = 0) -> int:
        """The widest forward whose cost is known; 1 where none is."""
        return self._nearest(context).widest

    def list_measured(self, context: int = 0) -> dict[int, float]:
        """The expected seconds of the widths that were measured."""
        return {width: self.seconds(width, context) for width in sorted(self._nearest(context).seen)}

    # State kept between runs.

    def state(self) -> dict[str, Any]:
        return {
            str(number): {name: getattr(bucket, name) for name in KEPT}
            for number, bucket in self._buckets.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a :meth:`state`. Raises ValueError for anything else."""
        self._buckets = msgspec.convert(state, dict[int, _Bucket], strict=False)

    def _nearest(self, context: int) -> _Bucket:
        if not self._buckets:
            return self._unknown
        wanted = _bucket(context)
        found = self._buckets.get(wanted)
        return found or self._buckets[min(self._buckets, key=lambda number: abs(number - wanted))]


class _Points:
    """Values at some widths, straight lines between them."""

    def __init__(self, values: Mapping[int, float]) -> None:
        self.widths = sorted(values)
        self.values = [values[width] for width in self.widths]

    def at(self, width: int) -> float:
        """The value at ``width``; beyond the points the outer lines go on."""
        i = min(max(bisect_left(self.widths, width), 1), len(self.widths) - 1)
        low, high = self.widths[i - 1], self.widths[i]
        slope = (self.values[i] - self.values[i - 1]) / (high - low)
        return self.values[i - 1] + slope * (width - low)


class _Bucket(msgspec.Struct):
    """Costs at contexts of similar length; the first four fields are kept between runs."""

    level: Positive
    """seconds of a 1-wide forward"""
    per_token: Annotated[float, Meta(ge=0.0, le=1e3)] = 0.0
    """seconds per token of a piece of a prompt; 0: not measured"""
    ratios: dict[Width, Positive] = {}
    """costs of forwards relative to a 1-wide one"""
    seen: dict[Width, Count] = {}
    widest: int = 1
    table: list[float] = []
    line: _Points | None = None
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.ratios[1] = 1.0
        self.widest = max((width for width, times in self.seen.items() if times >= KNOWN), default=1)

    def heir(self) -> _Bucket:
        """A copy that the next bucket starts with, until it is measured itself."""
        seen = {width: min(times, KNOWN) for width, times in self.seen.items()}
        return _Bucket(self.level, self.per_token, dict(self.ratios), seen)

    def seconds(self, prior: _Points, width: int) -> float:
        if width > WIDE and self.per_token:
            return width * self.per_token
        return self.level * self.relative(width, prior)

    def relative(self, width: int, prior: _Points) -> float:
        """Return :meth:`ratio` from a table that is rebuilt when it is off by more than a hundredth."""
        if self.moved > STALE or not self.table:
            self.table = [self.ratio(w, prior) for w in range(WIDE + 1)]
            self.moved = 0.0
        return self.table[width] if width <= WIDE else self.ratio(width, prior)

    def ratio(self, width: int, prior: _Points) -> float:
        known = self.ratios.get(width)
        if known is not None:
            return known
        if self.line is None:
            self.line = _Points(self.ratios) if len(self.ratios) > 1 else prior
        widest = max(self.ratios)
        if width < widest:
            return self.line.at(width)
        return self.ratios[widest] * prior.at(width) / prior.at(widest)

    def observe(self, width: int, seconds: float, prior: _Points) -> None:
        times = self.seen[width] = self.seen.get(width, 0) + 1
        if times >= KNOWN and width > self.widest:
            self.widest = width
        if times <= FIRST:
            self._begin(width, seconds, times, prior)
            return
        surprise = math.log(seconds / (self.level * self.ratio(width, prior)))
        surprise = min(max(surprise, -CLIP), CLIP)
        self.level *= math.exp(LEVEL_GAIN * surprise)
        if width > 1:
            self.ratios[width] *= math.exp(RATIO_GAIN * surprise)
            self.line = None
            self.moved += abs(RATIO_GAIN * surprise)

    def _begin(self, width: int, seconds: float, times: int, prior: _Points) -> None:
        """Take one of the first samples of a width: the fastest counts, because interference only makes a
        forward slower."""
        if not self.level:
            self.level = seconds / self.ratio(width, prior)
        if width == 1:
            level = seconds if times == 1 else min(self.level, seconds)
            for other in self.ratios.keys() - {1}:
                self.ratios[other] *= self.level / level  # their measured seconds stay the same
            self.level = level
        else:
            ratio = min(seconds / self.level, LONGEST_S)
            self.ratios[width] = ratio if times == 1 else min(self.ratios.get(width, ratio), ratio)
        self.line, self.table = None, []

    def observe_piece(self, per_token: float) -> None:
        """Learn the seconds per token of a piece of a prompt."""
        if not self.per_token:
            self.per_token = per_token
        surprise = min(max(math.log(per_token / self.per_token), -CLIP), CLIP)
        # A slower one may have been held up; a faster one shows what is possible.
        self.per_token *= math.exp(surprise if surprise < 0 else LEVEL_GAIN * surprise)


def _bucket(context: int) -> int:
    return (context // FIRST_BUCKET).bit_length()
