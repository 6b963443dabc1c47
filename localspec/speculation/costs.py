"""The cost curve: seconds of a forward by its width and the length of the context, on this machine.

A forward of k+1 tokens takes longer than one of 1, by a factor that differs from machine to machine and
decides how much speculation can gain. It is measured when the machine is idle, and refined by every round.
On a device that replays graphs a change of the width costs time, too: the first forwards of one take longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

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
SLOWER_GAIN, FASTER_GAIN = 0.04, 0.5
"""shares of a longer and of a shorter time that are taken over for the first forwards of a width"""
KEPT = ("level", "per_token", "ratios", "seen", "first")
"""fields of a bucket that are kept between runs"""

PRIORS: tuple[tuple[str, Mapping[int, float]], ...] = (
    ("(gpu)", {2: 1.03, 4: 1.47, 5: 1.6, 8: 2.69, 16: 3.9, 32: 4.5, 64: 5.7}),
    ("F32", {2: 1.15, 4: 1.41, 5: 1.41, 8: 1.83, 16: 2.85, 32: 5.01, 64: 9.33}),
    ("F16", {2: 1.29, 4: 1.70, 5: 1.75, 8: 2.17, 16: 3.39, 32: 5.79, 64: 10.6}),
    ("Q8", {2: 2.28, 4: 2.67, 5: 3.47, 8: 3.66, 16: 6.0, 32: 10.9, 64: 20.7}),
    ("", {2: 1.62, 4: 2.53, 5: 3.22, 8: 4.53, 16: 7.21, 32: 12.3, 48: 17.3, 64: 22.3}),
)
"""relative costs measured on other machines, by a part of a model's description, which names its device or
precision: MLX on Apple's GPUs, then CPUs; the last one is for all others. Of two measurements the higher one
is listed; the costs of 64 are those of a straight line."""

SHORTEST_S, LONGEST_S = 1e-7, 1e3
"""seconds of a forward that counts; the bounds of relative costs, too"""
WIDTHS = range(WIDE + 1)
Seconds = NDArray[np.float64]
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
    ``unknown_s`` is the level before any forward was measured, ``settling`` the number of forwards of a width
    that take longer after one of another width.
    """

    def __init__(self, description: str = "", *, unknown_s: float = UNKNOWN_S, settling: int = 0) -> None:
        self._prior = _draw_line({1: 1.0, **prior_for(description)})
        self._unknown = _Bucket(unknown_s, table=self._prior.tolist())
        """stands for contexts of every length before a forward was measured"""
        self._buckets: dict[int, _Bucket] = {}
        self._settling, self._run = settling, 0
        self.last = 0
        """the width of the last forward, 0: unknown; ``_run`` forwards in turn had it"""

    def seconds(self, width: int, context: int = 0) -> float:
        """The expected seconds of a forward of ``width`` tokens after ``context`` tokens."""
        return self._nearest(context).seconds(width)

    def prefill_s(self) -> float:
        """The expected seconds per token of a prompt that is read in pieces of 64 or more."""
        return self.seconds(WIDE + 1) / (WIDE + 1)

    def line(self, context: int) -> list[float]:
        """Return :meth:`seconds` of all widths from 0 to 64 at once: item i is that of width i."""
        bucket = self._nearest(context)
        return [bucket.level * ratio for ratio in bucket.table]

    def switches(self, context: int) -> Sequence[float]:
        """The seconds that a change to each width costs, as :meth:`line`; empty: none costs any."""
        first = self._nearest(context).first
        if not first:
            return ()
        seconds: list[float] = (
            self._settling * np.maximum(_draw_line(first) - self.line(context), 0.0)
        ).tolist()
        return seconds

    def change_s(self, width: int, context: int) -> float:
        """Return the seconds that a change of the last forward's width to ``width`` costs."""
        changes = self.switches(context) if self.last not in (0, width) else ()
        return changes[min(width, WIDE)] if changes else 0.0

    def interrupt(self) -> None:
        """Note a forward of another kind: a piece of a prompt, or one of several sequences."""
        self.last = self._run = 0

    def observe(self, width: int, context: int, seconds: float) -> None:
        """Learn that a forward of ``width`` tokens after ``context`` tokens took ``seconds``."""
        if not SHORTEST_S <= seconds <= LONGEST_S or width < 1:
            return
        self._run = self._run + 1 if width == self.last else 1
        self.last = min(width, WIDE)
        number = _bucket(context)
        bucket = self._buckets.get(number)
        if bucket is None:
            if not self._buckets and width > WIDE:
                return  # the time of a piece of a prompt says nothing about a round's
            bucket = self._buckets[number] = self._nearest(context).heir()
        if width > WIDE:
            bucket.observe_piece(seconds / width)
            return
        if self._run <= self._settling:
            bucket.observe_first(width, seconds)
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
        for bucket in self._buckets.values():
            bucket.fill(self._prior)

    def _nearest(self, context: int) -> _Bucket:
        if not self._buckets:
            return self._unknown
        wanted = _bucket(context)
        found = self._buckets.get(wanted)
        return found or self._buckets[min(self._buckets, key=lambda number: abs(number - wanted))]


def _draw_line(values: Mapping[int, float]) -> Seconds:
    """Return values for all widths from 0 to 64: straight lines between those given, and even beyond them."""
    widths = sorted(values)
    return np.interp(WIDTHS, widths, [values[width] for width in widths])


class _Bucket(msgspec.Struct):
    """Costs at contexts of similar length; the first five fields are kept between runs."""

    level: Positive
    """seconds of a 1-wide forward"""
    per_token: Annotated[float, Meta(ge=0.0, le=1e3)] = 0.0
    """seconds per token of a piece of a prompt; 0: not measured"""
    ratios: dict[Width, Positive] = {}
    """costs of forwards relative to a 1-wide one"""
    seen: dict[Width, Count] = {}
    first: dict[Width, Positive] = {}
    """seconds of forwards after one of another width"""
    widest: int = 1
    table: list[float] = []
    """costs of all widths from 0 to 64, as ``ratios``; filled again once a hundredth off"""
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.ratios[1] = 1.0
        self.widest = max((width for width, times in self.seen.items() if times >= KNOWN), default=1)

    def heir(self) -> _Bucket:
        """A copy that the next bucket starts with, until it is measured itself."""
        seen = {width: min(times, KNOWN) for width, times in self.seen.items()}
        level = self.level if self.seen or self.per_token else 0.0
        return _Bucket(level, self.per_token, dict(self.ratios), seen, dict(self.first), table=self.table)

    def seconds(self, width: int) -> float:
        if width > WIDE:
            return width * (self.per_token or self.level * self.table[WIDE] / WIDE)
        return self.level * self.table[width]

    def fill(self, prior: Seconds) -> None:
        """Fill the table: behind the widest measured width the costs rise as those of ``prior`` do."""
        widest, line = max(self.ratios), _draw_line(self.ratios)
        line[widest:] = prior[widest:] * self.ratios[widest] / prior[widest]
        self.table, self.moved = line.tolist(), 0.0

    def observe(self, width: int, seconds: float, prior: Seconds) -> None:
        times = self.seen[width] = self.seen.get(width, 0) + 1
        if times >= KNOWN and width > self.widest:
            self.widest = width
        if times <= FIRST:
            self._begin(width, seconds, times, prior)
            return
        surprise = math.log(seconds / (self.level * self.ratios[width]))
        surprise = min(max(surprise, -CLIP), CLIP)
        self.level *= math.exp(LEVEL_GAIN * surprise)
        if width > 1:
            self.ratios[width] *= math.exp(RATIO_GAIN * surprise)
            self.moved += abs(RATIO_GAIN * surprise)
            if self.moved > STALE:
                self.fill(prior)

    def observe_first(self, width: int, seconds: float) -> None:
        """Learn the time of a forward after another width: near the fastest, as others were held up."""
        self.level = self.level or seconds / self.table[width]
        known = self.first.setdefault(width, seconds)
        self.first[width] += (FASTER_GAIN if seconds < known else SLOWER_GAIN) * (seconds - known)

    def _begin(self, width: int, seconds: float, times: int, prior: Seconds) -> None:
        """Take one of the first samples of a width: the fastest counts, because interference only makes a
        forward slower."""
        if not self.level:
            self.level = seconds / self.table[width]
        if width == 1:
            level = seconds if times == 1 else min(self.level, seconds)
            for other in self.ratios.keys() - {1}:
                self.ratios[other] *= self.level / level  # their measured seconds stay the same
            self.level = level
        else:
            ratio = min(seconds / self.level, LONGEST_S)
            self.ratios[width] = ratio if times == 1 else min(self.ratios.get(width, ratio), ratio)
        self.fill(prior)

    def observe_piece(self, per_token: float) -> None:
        """Learn the seconds per token of a piece of a prompt."""
        if not self.per_token:
            self.per_token = per_token
        surprise = min(max(math.log(per_token / self.per_token), -CLIP), CLIP)
        # A slower one may have been held up; a faster one shows what is possible.
        self.per_token *= math.exp(surprise if surprise < 0 else LEVEL_GAIN * surprise)


def _bucket(context: int) -> int:
    return (context // FIRST_BUCKET).bit_length()
