"""The n-grams that chats have taught, so that a turn teaches what is new of it, not the whole chat again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.memory.hashing import MULTIPLIER, Words, hashes_in

SPAN = 1024
"""tokens that are looked at in a step"""
MARGIN = 64
"""tokens around what is new that are read with it: a secret is known by what stands beside it"""
MOST = 1 << 19
"""n-grams that are remembered, of all chats; then those of the chat that has waited longest go"""

Key = tuple[str, str]
"""the names of a table and of a source"""


class Taught:
    """What was taught of the longest ``order``, by table and source; 8 bytes per token.

    It is kept when a source is forgotten: the chat's next turn does not bring back what was said before.
    """

    def __init__(self, order: int) -> None:
        self._order = order
        self._known: OrderedDict[Key, Words] = OrderedDict()
        self._size = 0

    def fresh(self, key: Key, tokens: Sequence[int]) -> Generator[None, None, list[tuple[int, int]]]:
        """The (start, end) of the stretches that hold all n-grams that this source has not taught yet."""
        known, n = self._known.get(key), self._order
        if known is None or not len(known):
            return [(0, len(tokens))]
        found = []
        for start in range(n, len(tokens), SPAN):
            words = np.asarray(tokens[start - n : start + SPAN], np.uint64)
            marks = _marks(hashes_in(words, (n,))[n][:-1], words[n:])
            nearest = np.minimum(np.searchsorted(known, marks), len(known) - 1)
            found.append(start + np.flatnonzero(known[nearest] != marks))
            yield
        return _stretches(np.concatenate(found) if found else np.empty(0, np.intp), n + MARGIN, len(tokens))

    def add(self, key: Key, grams: Iterable[tuple[Words, Words]]) -> None:
        """These hashes were followed by these tokens, and taught."""
        marks = [_marks(hashes, tokens) for hashes, tokens in grams if len(hashes)]
        if not marks:
            return
        before = self._known.pop(key, np.empty(0, np.uint64))
        known = self._known[key] = np.unique(np.concatenate([before, *marks]))[:MOST]
        self._size += len(known) - len(before)
        while self._size > MOST:
            self._size -= len(self._known.popitem(last=False)[1])


def _marks(hashes: Words, tokens: Words) -> Words:
    marks: Words = hashes * np.uint64(MULTIPLIER) + tokens + np.uint64(1)
    return marks


def _stretches(fresh: NDArray[np.intp], margin: int, length: int) -> list[tuple[int, int]]:
    """The places of ``fresh`` with what is around them; near ones together."""
    if not len(fresh):
        return []
    ends = np.flatnonzero(np.diff(fresh) > 2 * margin)
    firsts, lasts = fresh[[0, *(ends + 1)]].tolist(), fresh[[*ends, -1]].tolist()
    pairs = zip(firsts, lasts, strict=True)
    return [(max(0, first - margin), min(length, last + 1 + margin)) for first, last in pairs]
