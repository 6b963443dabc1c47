"""The n-grams learnt from chats, so that a turn teaches only its new text, not the whole chat again."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.memory.hashing import MULTIPLIER, Words, hashes_in
from localspec.memory.workspace import plain

SPAN = 1024
"""tokens examined in a step"""
MARGIN = 64
"""tokens around a new text that are examined with it: secrets are recognized by the text beside them"""
BUCKET_BITS = 16
"""log2 of the number of buckets"""
LANES = 8
"""n-grams in a bucket, a cache line: half a million in all; a new one in a full bucket takes the place of
another, which begins at 100,000 (with 4 in a bucket at 30,000)"""

Key = tuple[str, str]
"""the names of a table and of a source"""


class Taught:
    """The n-grams of the longest ``order`` that were taught, by table and source, as hashes of 64 bits.

    They are kept when a source is forgotten: the chat's next turn does not bring back its earlier text.
    """

    def __init__(self, order: int) -> None:
        self._order = order
        self._marks: Words = np.zeros((1 << BUCKET_BITS, LANES), np.uint64)

    def fresh(self, key: Key, tokens: Sequence[int]) -> Generator[None, None, list[tuple[int, int]]]:
        """The (start, end) of the stretches that hold all n-grams that this source has not taught yet."""
        found = [np.empty(0, np.intp)]
        for start, hashes, words in self._grams(tokens):
            found.append(start + np.flatnonzero(~self._has(_marks(key, hashes, words))))
            yield
        if len(tokens) <= self._order:
            return [(0, len(tokens))]
        return _stretches(np.concatenate(found), self._order + MARGIN, len(tokens))

    def add(self, key: Key, hashes: Words, tokens: Words) -> None:
        """Add n-grams that were taught: these hashes, each followed by the token of its index."""
        marks = _marks(key, hashes, tokens)
        # Of several marks for one place the last is written: the others come in the next round.
        for _ in range(LANES):
            marks = marks[~self._has(marks)]
            if not len(marks):
                return
            free = self._marks[_buckets(marks)] == 0
            lanes = np.where(
                free.any(axis=1), free.argmax(axis=1), (marks % np.uint64(LANES)).astype(np.intp)
            )
            self._marks[_buckets(marks), lanes] = marks

    def skip(self, key: Key, tokens: Sequence[int]) -> Iterator[None]:
        """Add all n-grams of a text that was forgotten before it was taught."""
        for _, hashes, words in self._grams(tokens):
            self.add(key, hashes, words)
            yield

    def _grams(self, tokens: Sequence[int]) -> Iterator[tuple[int, Words, Words]]:
        """The hashes of a text's n-grams, and the tokens that follow them, with the index of the first."""
        n = self._order
        for start in range(n, len(tokens), SPAN):
            words = np.asarray(tokens[start - n : start + SPAN], np.uint64)
            yield start, hashes_in(words, (n,))[n][:-1], words[n:]

    def _has(self, marks: Words) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self._marks[_buckets(marks)] == marks[:, None]).any(axis=1)
        return found


def _marks(key: Key, hashes: Words, tokens: Words) -> Words:
    digest = hashlib.blake2b(plain("\0".join(key)).encode(), digest_size=8).digest()
    marks: Words = (hashes + np.frombuffer(digest, np.uint64)) * np.uint64(MULTIPLIER) + tokens + np.uint64(1)
    return marks


def _buckets(marks: Words) -> Words:
    buckets: Words = marks >> np.uint64(64 - BUCKET_BITS)
    return buckets


def _stretches(fresh: NDArray[np.intp], margin: int, length: int) -> list[tuple[int, int]]:
    """Return the (start, end) of stretches that cover the sorted positions ``fresh``.

    Each reaches ``margin`` tokens further on both sides, within 0 and ``length``; overlapping ones are one.
    """
    if not len(fresh):
        return []
    ends = np.flatnonzero(np.diff(fresh) > 2 * margin)
    firsts, lasts = fresh[[0, *(ends + 1)]].tolist(), fresh[[*ends, -1]].tolist()
    pairs = zip(firsts, lasts, strict=True)
    return [(max(0, first - margin), min(length, last + 1 + margin)) for first, last in pairs]
