"""Borders of the sets that top-k, top-p and min-p keep while logits move, and a choice's margin.

If no two logits of a row move against each other by ``x`` or more, each is off by less than x / 2 from a
common shift. Then the r-th largest moves by less than x / 2, and the odds of the mass of the r largest change
by less than a factor of exp(x / temperature), even if tokens change places or enter the k best. So the number
of tokens in the nucleus stays between two ranks: the first ones at which these odds, raised and lowered by
that factor, reach those of top-p. A token that is x above the one after the former rank is certainly kept,
a token that is x below the latter is certainly not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.speculation.cuts import (
    SORTED,
    Cuts,
    Kept,
    Scores,
    best,
    bins_of,
    sum_of,
    weigh,
)

CLEAR = 2.0
"""logits; larger margins are not computed, because no backend's rounding comes near"""
STEPS = 12
"""halvings of an interval of at most CLEAR"""
ROUNDING = 1e-4
"""logits; more than the error of choosing in single precision"""
LEVELS = (1e-4, 1e-6)
"""weights down to which a row is sorted, one after the other, until the rest is too little to matter"""
FEWEST = 32
"""values that are sorted in any case, because the value after the nucleus is needed, too"""
WEIGHTLESS = 100.0
"""temperatures below the largest logit at which a weight, exp(−100), is 0 in single precision"""
EXACT = 1e-12
"""share of a sum in double precision that may be a rounding error"""
BLUR = 0.01
"""share of a bin's width by which a value may lie outside of it"""


class _Ranks(NamedTuple):
    """For each rank of the largest logits, falling: the least value of that logit, the most of the following
    one, and the log-odds of the mass of all logits up to it."""

    least: NDArray[np.float64]
    following: NDArray[np.float64]
    odds: NDArray[np.float64]


class Rivals(NamedTuple):
    """Logits of other tokens, and the lead of the chosen one over each, in logits, noise included."""

    values: Scores
    leads: NDArray[np.float64]


class Borders:
    """The limits in logits above which tokens are surely kept and below which they are surely not, for any
    movement ``x`` from 0 to :data:`CLEAR`."""

    def __init__(self, scores: Scores, cuts: Cuts, kept: Kept) -> None:
        self._temperature = cuts.temperature
        self._depth, self._floor = cuts.depth, kept.top - cuts.depth
        self._last = self._next = -math.inf
        self._ranks: _Ranks | None = None
        chosen = None
        if 0 < cuts.top_k < len(scores):
            falling = _falling(scores[best(scores, cuts.top_k + 1)])
            self._last, self._next = float(falling[-2]), float(falling[-1])
            # Values without any weight would make the bins wide.
            far = kept.top - WEIGHTLESS * cuts.temperature
            chosen = falling[: max(FEWEST, int(np.count_nonzero(falling[:-1] > far)))][: cuts.top_k]
        if cuts.top_p < 1.0:
            self._limit = math.log(cuts.top_p) - math.log1p(-cuts.top_p)
            if chosen is None:
                self._ranks = _ranks(_deep(scores, cuts, kept), cuts, kept, len(scores))
            else:
                self._ranks = _ranks(chosen, cuts, kept, len(chosen))
                self._ranks.odds[-1] = math.inf  # the k best are all there is
                if len(chosen) == cuts.top_k <= SORTED:
                    self._ranks.following[-1] = self._next

    def sure(self, x: float, best_other: float) -> float:
        """The logit above which a token is kept; ``best_other`` is the largest of all others."""
        found = max(self._next, best_other - self._depth)
        if self._ranks is not None:
            at = int(np.searchsorted(self._ranks.odds, self._limit - x / self._temperature))
            found = max(found, float(self._ranks.following[min(at, len(self._ranks.odds) - 1)]))
        return found + x

    def possible(self, x: float) -> float:
        """The logit below which a token is not kept."""
        found = max(self._last, self._floor)
        if self._ranks is not None:
            at = int(np.searchsorted(self._ranks.odds, self._limit + x / self._temperature))
            if at < len(self._ranks.odds):
                found = max(found, float(self._ranks.least[at]))
        return found - x

    def margin(self, own: float, best_other: float, rivals: Rivals, most: float) -> float:
        """Return the margin of the chosen token, at most ``most``: no smaller movement changes the choice.

        ``own`` is the chosen token's logit, ``best_other`` the largest of all others.
        """

        def safe(x: float) -> bool:
            if own <= self.sure(x, best_other):
                return False
            return not bool(((rivals.values >= self.possible(x)) & (rivals.leads < x)).any())

        if safe(most):
            return most
        low, high = 0.0, most
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if safe(middle) else (low, middle)
        return low


def _falling(values: Scores) -> Scores:
    found: Scores = -np.sort(-values)
    return found


def _deep(scores: Scores, cuts: Cuts, kept: Kept) -> Scores:
    """Return the largest values, in any order: at least as many as can be in the nucleus, or be left by
    min-p, while logits move by CLEAR."""
    limit = math.log(cuts.top_p) - math.log1p(-cuts.top_p) + CLEAR / cuts.temperature
    enough = math.exp(-(cuts.depth + CLEAR) / cuts.temperature)
    for level in (*LEVELS, 0.0):
        head = np.flatnonzero(kept.weights > level)
        mass = sum_of(kept.weights[head])
        if level <= enough or math.log(mass) - math.log(max(kept.total - mass, EXACT)) >= limit:
            break
    if len(head) < FEWEST:
        return scores[best(scores, min(FEWEST, len(scores)))]
    return scores[head]


def _ranks(values: Scores, cuts: Cuts, kept: Kept, size: int) -> _Ranks:
    """Return the ranks of ``values``, the largest of the ``size`` values among which top-p chooses."""
    if len(values) <= SORTED:
        falling = _falling(values)
        weights = weigh(falling, kept.top, cuts.temperature, np.empty_like(falling))
        least: NDArray[np.float64] = falling.astype(np.float64)
        following: NDArray[np.float64] = np.append(least[1:], least[-1])
        mass: NDArray[np.float64] = np.cumsum(weights, dtype=np.float64)
    else:
        weights = weigh(values, kept.top, cuts.temperature, np.empty_like(values))
        keys, width = bins_of(values)
        bins = np.flatnonzero(np.bincount(keys))
        mass = np.cumsum(np.bincount(keys, weights=weights), dtype=np.float64)[bins]
        following = (kept.top + BLUR * width) - width * bins.astype(np.float64)
        least = following - (1.0 + 2 * BLUR) * width
    odds = np.log(mass) - np.log(np.maximum(kept.total - mass, EXACT * kept.total))
    # A lower bound for odds lost in rounding: no later token is more probable than the following one.
    alone = (kept.top - following) / cuts.temperature - math.log(size)
    return _Ranks(least, following, np.maximum(odds, alone))
