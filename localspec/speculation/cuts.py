"""The cuts of a row of logits: the tokens that top-k, top-p and min-p leave.

A row is read a few times, in single precision, and only its best tokens are sorted. The tokens that are left
depend on the row alone: of equal logits the lowest ids come first, and sums are taken in a fixed order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
Ids = NDArray[np.int64]

SORTED = 4096
"""the most tokens that are sorted; more are put into bins first"""
BINS = 1 << 14
LEVEL = 1e-3
"""weight relative to the best token's; tokens above it usually contain the nucleus"""
FAINT = 1e-8
"""weight relative to the best token's; where all below it cannot move the nucleus, they are not weighed"""
CLOSE = 1e-6
"""share of a row's weight below which the rounding of a sum could matter"""
ROWS = 32
"""rows of a folded vocabulary; the k-th largest maximum of its columns is at most the k-th largest logit"""


class Cuts(NamedTuple):
    """The parameters; the defaults switch every cut off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def any(self) -> bool:
        """True if any of top-k, top-p and min-p is switched on."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def depth(self) -> float:
        """The distance below the largest logit at which min-p cuts."""
        return -self.temperature * math.log(self.min_p) if self.min_p > 0.0 else math.inf


def cut(scores: Scores, top: float, cuts: Cuts, scratch: Scores) -> Ids:
    """Return the tokens, rising, that top-k, top-p and min-p, in this order, leave of a row whose largest
    logit is ``top``, a finite number. ``scratch`` has the row's shape and is overwritten."""
    tokens = best(scores, cuts.top_k) if 0 < cuts.top_k < len(scores) else None
    if cuts.top_p < 1.0 and (tokens is not None or (tokens := _clear_nucleus(scores, top, cuts)) is None):
        values = scores if tokens is None else scores[tokens]
        weights = weigh(values, top, cuts.temperature, scratch[: len(values)])
        inside = _nucleus(values, weights, cuts.top_p, sum_of(weights))
        tokens = inside if tokens is None else tokens[inside]
    if cuts.min_p > 0.0:
        floor = np.float32(top - cuts.depth)
        tokens = np.flatnonzero(scores >= floor) if tokens is None else tokens[scores[tokens] >= floor]
    return np.arange(len(scores)) if tokens is None else tokens


def _clear_nucleus(scores: Scores, top: float, cuts: Cuts) -> Ids | None:
    """The nucleus of a whole row, rising, if it is the same whatever tokens below :data:`FAINT` weigh; else
    None, as for more than :data:`SORTED` tokens above it."""
    head = np.flatnonzero(scores >= np.float32(top + cuts.temperature * math.log(FAINT)))
    if len(head) > SORTED:
        return None
    values = scores[head]
    weights = weigh(values, top, cuts.temperature, np.empty_like(values))
    total = sum_of(weights)
    least = cuts.top_p * total * (1 - CLOSE)
    most = cuts.top_p * (total + len(scores) * FAINT) * (1 + CLOSE)
    if most <= 1.0:  # the best token alone
        return head[[int(values.argmax())]]
    strong = _heaviest(weights, most, max(total - most, 0.0))
    order = strong[np.argsort(-values[strong], kind="stable")]
    last, other = np.searchsorted(np.cumsum(weights[order], dtype=np.float64), (least, most)).tolist()
    return np.sort(head[order[: last + 1]]) if last == other else None


def surely_keeps(scores: Scores, top: float, cuts: Cuts, token: int, scratch: Scores) -> bool:
    """True if :func:`cut` without top-k keeps ``token``; False also if rounding could decide that. Takes two
    passes over the row, however many tokens the nucleus has."""
    own = scores[token]
    if cuts.min_p > 0.0 and own < np.float32(top - cuts.depth):
        return False
    weights = weigh(scores, top, cuts.temperature, scratch)
    total = sum_of(weights)
    return sum_of(weights[scores >= own]) - float(weights[token]) < (cuts.top_p - CLOSE) * total


def weigh(values: Scores, top: float, temperature: float, out: Scores) -> Scores:
    """``exp((values − top) / temperature)``, written to ``out``."""
    with np.errstate(over="ignore"):  # to minus infinity, which weighs nothing
        np.subtract(values, np.float32(top), out=out)
        np.multiply(out, np.float32(1.0 / temperature), out=out)
    return np.exp(out, out=out)


def sum_of(weights: Scores) -> float:
    """The sum, pairwise in single precision: in half the time of one in double."""
    return float(np.add.reduce(weights))


def best(scores: Scores, k: int) -> Ids:
    """Ids of the ``k`` largest, rising; of equal ones the first."""
    tokens = np.flatnonzero(scores >= _least_of_best(scores, k))
    values = scores[tokens]
    least = np.partition(values, len(values) - k)[len(values) - k]
    taken = values > least
    taken[np.flatnonzero(values == least)[: k - np.count_nonzero(taken)]] = True
    found: Ids = tokens[taken]
    return found


def _least_of_best(scores: Scores, k: int) -> np.float32:
    """A number that at least ``k`` of the scores reach, and not many more."""
    columns = len(scores) // ROWS
    if k > columns:
        return np.float32(np.partition(scores, len(scores) - k)[len(scores) - k])
    maxima = scores[: columns * ROWS].reshape(ROWS, columns).max(axis=0)
    return np.float32(np.partition(maxima, columns - k)[columns - k])


def _nucleus(values: Scores, weights: Scores, top_p: float, total: float) -> Ids:
    """Indices, rising, of the fewest largest whose weight reaches ``top_p`` of the total (Holtzman et al.,
    1904.09751)."""
    need = top_p * total
    head = _heaviest(weights, need, (1.0 - top_p) * total)
    kept, rest, before = _bins_inside(values[head], weights[head], need)
    order = rest[np.argsort(-values[head[rest]], kind="stable")]
    mass = np.cumsum(weights[head[order]], dtype=np.float64)
    kept[order[: int(np.searchsorted(mass, need - before)) + 1]] = True
    found: Ids = head[kept]
    return found


def _heaviest(weights: Scores, need: float, rest: float) -> Ids:
    """Indices of the largest weights, which together reach ``need``; the others may sum to ``rest``."""
    for level in (LEVEL, 0.99 * rest / len(weights)):
        head = np.flatnonzero(weights >= level)
        if sum_of(weights[head]) >= need:
            return head
    return np.flatnonzero(weights)


def _bins_inside(values: Scores, weights: Scores, need: float) -> tuple[NDArray[np.bool_], Ids, float]:
    """Return a mask of the values certainly in the nucleus, the indices of the values that must be sorted to
    find the rest of it, and the summed weight of the former. All others are outside."""
    if len(values) <= SORTED:
        return np.zeros(len(values), dtype=np.bool_), np.arange(len(values)), 0.0
    top, bottom = float(values.max()), float(values.min())
    width = max((top - bottom) / (BINS - 1), 1e-30)
    keys = ((np.float32(top) - values) / np.float32(width)).astype(np.intp)
    mass = np.cumsum(np.bincount(keys, weights=weights))
    last = min(int(np.searchsorted(mass, need)), len(mass) - 1)
    before = float(mass[last - 1]) if last else 0.0
    return keys < last, np.flatnonzero(keys == last), before
