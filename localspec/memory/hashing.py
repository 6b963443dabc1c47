"""The hashes of n-grams: of the last n tokens of one context, or of a whole text at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ORDERS = (16, 8, 5, 3)
"""the n of the n-grams, longest first: the order in which they are looked up"""
MULTIPLIER = 6364136223846793005
"""Knuth's multiplier (MMIX) of the rolling hash"""
WORD = (1 << 64) - 1
INVERSE = pow(MULTIPLIER, -1, 1 << 64)
HIGHEST = pow(MULTIPLIER, ORDERS[0], 1 << 64)
"""the factor of the newest token in a hash of the longest order"""

Words = NDArray[np.uint64]


def hashes_of(context: Sequence[int], orders: Sequence[int] = ORDERS) -> tuple[int, ...]:
    """The hashes of the last n tokens for every order, longest first.

    One pass from the newest token backwards, so that order n extends order n - 1. A context too short
    for the longest orders gives the hashes of the others: the result always ends with the shortest.
    Each token is multiplied at least once: the upper bits of a hash depend on all tokens.
    """
    newest_first = context[: -orders[0] - 1 : -1]
    found: list[int] = []
    value = done = 0
    for n in reversed(orders):
        if n > len(newest_first):
            break
        for token in newest_first[done:n]:
            value = (value + token + 1) * MULTIPLIER & WORD
        found.append(value)
        done = n
    return tuple(reversed(found))


def roll_hash(value: int, oldest: int, newest: int) -> int:
    """The longest order's hash, one token further: ``oldest`` left it, ``newest`` came."""
    return (value * INVERSE - oldest - 1 + (newest + 1) * HIGHEST) & WORD


def hashes_in(tokens: Words) -> dict[int, Words]:
    """Per order n that fits: the hashes of the n tokens that end at index n - 1, n, … of ``tokens``."""
    values, found = np.zeros_like(tokens), {}
    for back in range(min(ORDERS[0], len(tokens))):
        values[back:] += tokens[: len(tokens) - back] + np.uint64(1)
        values[back:] *= np.uint64(MULTIPLIER)
        if back + 1 in ORDERS:
            found[back + 1] = values[back:].copy()
    return found
