"""Counter-based randomness: a number depends on (seed, position, stream) alone.

So a seeded text depends on the model, the request and the seed, and not on who drafted, how many
tokens at a time, or who else was in the batch. The mixer is splitmix64 (Steele, Lea, Flood:
"Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Stream(IntEnum):
    """What a number is used for; streams are independent of each other."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def _mix(x: int) -> int:
    x = (x ^ (x >> 30)) * _MIX_1 & _MASK
    x = (x ^ (x >> 27)) * _MIX_2 & _MASK
    return x ^ (x >> 31)


class Noise:
    """The random numbers of one request."""

    def __init__(self, seed: int) -> None:
        self._seed = _mix((seed + _GOLDEN) & _MASK)

    def _key(self, position: int, stream: Stream) -> int:
        return _mix((self._seed + _GOLDEN * (position * len(Stream) + stream + 1)) & _MASK)

    def uniform(self, position: int, stream: Stream) -> float:
        """A number in (0, 1)."""
        return ((_mix(self._key(position, stream)) >> 11) + 0.5) * 2.0**-53

    def gumbel(self, position: int, stream: Stream, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """A standard Gumbel number for every token, shape of ``tokens``.

        ``argmax(log p + gumbel)`` is a sample of p. A draft and a target that use the same numbers
        pick the same token far more often than two independent samples would.
        """
        x = tokens.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(self._key(position, stream))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
        x ^= x >> np.uint64(31)
        uniform = ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        numbers: NDArray[np.float64] = -np.log(-np.log(uniform))
        return numbers
