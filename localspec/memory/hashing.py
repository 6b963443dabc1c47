"""The hashes of n-grams: of the last n tokens of one context, or of a whole text at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

ORDERS = (16, 8, 5, 3)
"""the n of the n-grams, longest first: the order in which they are looked up"""
MULTIPLIER = 6364136223846793005
"""Knuth's multiplier (MMIX) of the rolling hash"""
WORD = (1 << 64) - 1
INVERSE = pow(MULTIPLIER, -1, 1 << 64)

Words = NDArray[np.uint64]


def hashes_of(context: Sequence[int], orders: Sequence[int] = ORDERS) -> tuple[int, ...]:
    """The hashes of the last n tokens for every order, longest first.

    One pass from the newest token backwards, so that order n extends order n - 1. A context too short
    for the longest orders gives the hashes of the others: the result always ends with the shortest.
    """
    newest_first = context[: -orders[0] - 1 : -1]
    found: list[int] = []
    value = done = 0
    for n in reversed(orders):
        if n > len(newest_first):
            break
        for token in newest_first[done:n]:
            value = (value * MULTIPLIER + token + 1) & WORD
        found.append(value)
        done = n
    return tuple(reversed(found))


@cache
def power(n: int) -> int:
    """MULTIPLIER to the n."""
    return pow(MULTIPLIER, n, 1 << 64)


def rolled(value: int, oldest: int, newest: int, n: int) -> int:
    """The hash of n tokens, one token further: ``oldest`` left them, ``newest`` came."""
    return ((value - oldest - 1) * INVERSE + (newest + 1) * power(n - 1)) & WORD


def hashes_in(tokens: Words) -> dict[int, Words]:
    """Per order n that fits: the hashes of the n tokens that end at index n - 1, n, … of ``tokens``."""
    values, found = np.zeros_like(tokens), {}
    for back in range(min(ORDERS[0], len(tokens))):
        values[back:] = values[back:] * np.uint64(MULTIPLIER) + tokens[: len(tokens) - back] + np.uint64(1)
        if back + 1 in ORDERS:
            found[back + 1] = values[back:].copy()
    return found


def salt_of(epoch: int) -> int:
    """The odd number that turns hashes into the keys of one epoch.

    Multiplying by it is a bijection of the 64-bit words, mixes into the upper bits, and makes the keys
    of two epochs unrelated. The mixer is splitmix64 (Steele, Lea, Flood 2014).
    """
    value = (epoch + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & WORD
    return (value ^ value >> 31) | 1
