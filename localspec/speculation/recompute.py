"""The later cost of wide rounds in strict mode, and the decision whether they are worth it.

A forward of more tokens than rounding allows writes cells that are slightly off. At the next near-tie all
cells from the first of these on are recomputed as plain decoding writes them, and the time that drafts saved
on them is lost. Where near-ties are rare, long drafts are worth that; where they are frequent, drafts stay
short enough to leave every cell exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

NEAR = 1.0
"""logits; margins below it are counted, and assumed to be spread evenly"""
SHARE, WEIGHT = 0.25, 2.0
"""share of margins below NEAR that is assumed at first, and the weight of that assumption, in rows"""
ALWAYS = 1.0 - 1e-12
HORIZON = 64
"""tokens that a request is assumed to go on for, at least"""


class NearTies:
    """The frequency of near-ties in a request, from the margins seen."""

    def __init__(self) -> None:
        self._near, self._rows = SHARE * WEIGHT, WEIGHT

    def see(self, margin: float) -> None:
        """Learn that a row's best two tokens are ``margin`` logits apart."""
        self._near += margin < NEAR
        self._rows += 1

    def rate(self, bound: float) -> float:
        """The expected share of rows whose margin is below ``bound``."""
        return self._near / self._rows * min(bound / NEAR, 1.0)


class RecomputeRisk(NamedTuple):
    """The risk of a wide next round: after one of more than ``width`` tokens, all cells from there on are
    recomputed at the next near-tie, of which ``rate`` per token are expected."""

    width: int
    rate: float

    def chance(self, tokens: float) -> float:
        """The probability of a near-tie within ``tokens`` tokens."""
        return -math.expm1(tokens * self._log_quiet)

    def cells(self, tokens: float) -> float:
        """The expected number of recomputed cells among the next ``tokens``: those before the first
        near-tie, if there is one. It is the mean of a truncated geometric distribution."""
        quiet = math.exp(tokens * self._log_quiet)
        return (self.chance(tokens) - tokens * self.rate * quiet) / self.rate

    @property
    def _log_quiet(self) -> float:
        """The logarithm of the probability that a row is no near-tie."""
        return math.log1p(-min(self.rate, ALWAYS))


class Patience:
    """Decides when a request's drafts have shown that they are worth the recompute.

    This is the ski-rental rule: long drafts are held back until the time they would have saved reaches the
    time that the recompute may take, so at most twice that is ever lost. They are held back for good where a
    token's share of the recompute is more than the time saved on it.
    """

    def __init__(self) -> None:
        self._missed = self._held = 0.0
        self._tokens = self._length = 0

    def advance(self, length: int) -> None:
        """Count the tokens since the last call; the context has ``length`` tokens now."""
        if self._length:
            self._tokens += length - self._length
            self._missed += self._held * (length - self._length)
        self._length, self._held = length, 0.0

    def hold(self, seconds: float) -> None:
        """Note that a draft was held back that would have saved ``seconds`` on every token."""
        self._held = max(self._held, seconds)

    def over(self, recompute_risk: RecomputeRisk, cell_s: float, *, answered: int, left: float) -> bool:
        """Return True if wide rounds may begin. Recomputing a cell takes ``cell_s`` seconds; the answer is
        ``answered`` tokens long, and at most ``left`` more are to come."""
        if not self._missed:
            return False
        horizon = min(left, max(answered, HORIZON))
        price = max(recompute_risk.chance(horizon) * self._tokens, recompute_risk.cells(horizon))
        return self._missed > price * cell_s
