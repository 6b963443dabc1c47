"""What strict mode makes wide rounds cost in the end, and when that is worth it.

A forward of more tokens than rounding allows writes cells that are a little off. At the next near-tie
all cells since the first of these are written anew as plain decoding writes them, and what drafts saved
on them is lost. Where near-ties are rare that is a fair price for long drafts; where they are not, drafts
stay as short as leaves every cell exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

NEAR = 1.0
"""logits; margins under it are counted, and taken to be spread evenly"""
SHARE, WEIGHT = 0.25, 2.0
"""of a request's margins that are under it before any was seen, and how many rows that weighs"""
ALWAYS = 1.0 - 1e-12
HORIZON = 64
"""tokens that a request is taken to go on for at least"""


class NearTies:
    """How often a request's rows are close, from the margins of those that were looked at."""

    def __init__(self) -> None:
        self._near, self._rows = SHARE * WEIGHT, WEIGHT

    def see(self, margin: float) -> None:
        """A row's best two tokens are ``margin`` logits apart."""
        self._near += margin < NEAR
        self._rows += 1

    def rate(self, bound: float) -> float:
        """The share of rows whose margin is to be expected under ``bound``."""
        return self._near / self._rows * min(bound / NEAR, 1.0)


class Rewriting(NamedTuple):
    """What the next round risks: more than ``width`` tokens in it, and all cells from there on are
    written anew at the next near-tie, of which there are ``rate`` a token."""

    width: int
    rate: float

    def chance(self, tokens: float) -> float:
        """The probability of a near-tie within so many tokens."""
        return -math.expm1(tokens * self._log_quiet)

    def cells(self, tokens: float) -> float:
        """How many of the next ``tokens`` cells are to be expected written anew: those before the first
        near-tie, if there is one. The mean of a geometric distribution that is cut off."""
        quiet = math.exp(tokens * self._log_quiet)
        return (self.chance(tokens) - tokens * self.rate * quiet) / self.rate

    @property
    def _log_quiet(self) -> float:
        """Of the probability that a row is no near-tie."""
        return math.log1p(-min(self.rate, ALWAYS))


class Patience:
    """Whether a request's drafts have shown that they are worth the rewriting.

    As whoever goes skiing rents until the rent has come to the price of the skis: drafts are held back
    until what they would have saved has come to what the rewriting may cost, twice that being the most
    that is ever lost; and never where a token's share of it is more than what is saved on one.
    """

    def __init__(self) -> None:
        self._missed = self._held = 0.0
        self._tokens = self._length = 0

    def advance(self, length: int) -> None:
        """The context has ``length`` tokens now."""
        if self._length:
            self._tokens += length - self._length
            self._missed += self._held * (length - self._length)
        self._length, self._held = length, 0.0

    def hold(self, seconds: float) -> None:
        """A draft was held back that would have saved so much on every token."""
        self._held = max(self._held, seconds)

    def over(self, rewriting: Rewriting, cell_s: float, *, answered: int, left: float) -> bool:
        """Whether wide rounds may begin, where a cell takes ``cell_s`` to write anew; the request is
        ``answered`` tokens long and ends after ``left`` at the latest."""
        if not self._missed:
            return False
        horizon = min(left, max(answered, HORIZON))
        price = max(rewriting.chance(horizon) * self._tokens, rewriting.cells(horizon))
        return self._missed > price * cell_s
