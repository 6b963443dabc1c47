"""The random numbers of sampling, which depend on seed, position, purpose and token alone."""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ROUNDS = (16, 0x21F0AAAD), (15, 0xD35A2D97)
_LAST_SHIFT = 15

FEW = 2048
"""tokens up to which the logarithms of all random numbers are taken"""
_LUCKY = 2**32 - 2**23
"""one number in 512 is at least this"""
_SLACK = 1e-3
"""more than the rounding error of a score in single precision"""


class NoiseStream(IntEnum):
    """The use of a random number; streams are independent of each other."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def _mix(x: int) -> int:
    x = (x ^ (x >> 30)) * _MIX_1 & _MASK
    x = (x ^ (x >> 27)) * _MIX_2 & _MASK
    return x ^ (x >> 31)


class Noise:
    """The random numbers of one request: a number depends on (seed, position, stream) alone.

    So a seeded text depends on the model, the request and the seed, and not on the proposer, the draft
    lengths, or the other requests of a batch. The mixer is splitmix64 (Steele, Lea, Flood: "Fast splittable
    pseudorandom number generators", OOPSLA 2014); the numbers for a whole vocabulary come from a 32-bit
    mixer, which is four times as fast (Wellons, https://github.com/skeeto/hash-prospector).
    """

    def __init__(self, seed: int) -> None:
        self._seed = _mix((seed + _GOLDEN) & _MASK)
        self._scratch = np.empty((2, 0), dtype=np.uint32)

    def _key(self, position: int, stream: NoiseStream) -> int:
        return _mix((self._seed + _GOLDEN * (position * len(NoiseStream) + stream + 1)) & _MASK)

    def uniform(self, position: int, stream: NoiseStream) -> float:
        """A number in (0, 1)."""
        return ((_mix(self._key(position, stream)) >> 11) + 0.5) * 2.0**-53

    def gumbel(self, position: int, stream: NoiseStream, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """A standard Gumbel number for every token, shape of ``tokens``. ``argmax(log p + gumbel)`` is a
        sample of p. A draft and a target that use the same numbers pick the same token far more often than
        two independent samples would."""
        return _gumbel(self._bits(position, stream, tokens.astype(np.uint32)))

    def race(
        self,
        position: int,
        stream: NoiseStream,
        logits: NDArray[np.float32],
        temperature: float = 1.0,
        tokens: NDArray[np.int64] | None = None,
    ) -> int:
        """Return the index of the largest of ``logits / temperature + gumbel``. ``logits`` are those of
        ``tokens``, or of a whole vocabulary, shape (vocabulary,), if these are not given. Logarithms are
        taken only of large random numbers, and of those whose logit could make up for a smaller number."""
        if len(logits) <= FEW:
            few = np.arange(len(logits)) if tokens is None else tokens
            return int((logits / temperature + self.gumbel(position, stream, few)).argmax())
        bits = self._bits(position, stream, _ids(len(logits)) if tokens is None else tokens.astype(np.uint32))
        lucky = np.flatnonzero(bits >= _LUCKY)
        known = logits[lucky] / temperature + _gumbel(bits[lucky])
        least = float(known.max(initial=-math.inf))
        near = logits >= temperature * (least - _LUCKY_GUMBEL - _SLACK)
        near[lucky] = True
        at = np.flatnonzero(near)
        return int(at[(logits[at] / temperature + _gumbel(bits[at])).argmax()])

    def _bits(self, position: int, stream: NoiseStream, tokens: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return a random number for every token, valid until the next call."""
        if self._scratch.shape[1] < len(tokens):
            # Kept, because fresh memory for a large vocabulary takes four times as long as the arithmetic.
            self._scratch = np.empty((2, len(tokens)), dtype=np.uint32)
        x: NDArray[np.uint32] = self._scratch[0, : len(tokens)]
        shifted = self._scratch[1, : len(tokens)]
        key = self._key(position, stream)
        np.multiply(tokens, np.uint32(key >> 32 | 1), out=x)
        x += np.uint32(key & 0xFFFFFFFF)
        for shift, factor in _ROUNDS:
            x ^= np.right_shift(x, shift, out=shifted)
            x *= np.uint32(factor)
        x ^= np.right_shift(x, _LAST_SHIFT, out=shifted)
        return x


@lru_cache(maxsize=4)
def _ids(vocabulary: int) -> NDArray[np.uint32]:
    return np.arange(vocabulary, dtype=np.uint32)


def _gumbel(bits: NDArray[np.uint32]) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = -np.log(-np.log((bits + 0.5) * 2.0**-32))
    return numbers


_LUCKY_GUMBEL = float(_gumbel(np.array([_LUCKY], dtype=np.uint32))[0])
