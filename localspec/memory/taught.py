"""The n-grams learnt from chats, so that a turn teaches only its new text, not the whole chat again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.memory.hashing import MULTIPLIER, Words, hashes_in

SPAN = 1024
"""tokens examined in a step"""
MARGIN = 64
"""tokens around a new text that are examined with it: secrets are recognized by the text beside them"""
MOST = 1 << 19
"""most n-grams kept, of all chats; beyond that those of the least recently extended chat are dropped"""

PORTION = 2048
"""n-grams merged into those of a chat at once"""
NOTHING: Words = np.empty(0, np.uint64)

Key = tuple[str, str]
"""the names of a table and of a source"""


class Taught:
    """The n-grams of the longest ``order`` that were taught, by table and source; 8 bytes per token.

    They are kept when a source is forgotten: the chat's next turn does not bring back its earlier text.
    """

    def __init__(self, order: int) -> None:
        self._order = order
        self._known: OrderedDict[Key, Words] = OrderedDict()
        self._size = 0
        self._key: Key = ("", "")
        self._new: list[Words] = []
        """marks added last, all of ``_key``, which :meth:`_settle` merges into ``_known``"""

    def fresh(self, key: Key, tokens: Sequence[int]) -> Generator[None, None, list[tuple[int, int]]]:
        """The (start, end) of the stretches that hold all n-grams that this source has not taught yet."""
        self._settle()
        known = self._known.get(key, NOTHING)
        if not len(known):
            return [(0, len(tokens))]
        found = []
        for start, marks in self._marks(tokens):
            found.append(start + np.flatnonzero(~_among(known, marks)))
            yield
        places = np.concatenate(found) if found else np.empty(0, np.intp)
        return _stretches(places, self._order + MARGIN, len(tokens))

    def add(self, key: Key, hashes: Words, tokens: Words) -> None:
        """Add n-grams that were taught: these hashes, each followed by the token of its index."""
        self._add(key, _marks(hashes, tokens))

    def skip(self, key: Key, tokens: Sequence[int]) -> Iterator[None]:
        """Add all n-grams of a text that was forgotten before it was taught."""
        for _, marks in self._marks(tokens):
            self._add(key, marks)
            yield

    def _marks(self, tokens: Sequence[int]) -> Iterator[tuple[int, Words]]:
        """The marks of a text's n-grams, with the index of the first one's last token."""
        n = self._order
        for start in range(n, len(tokens), SPAN):
            words = np.asarray(tokens[start - n : start + SPAN], np.uint64)
            yield start, _marks(hashes_in(words, (n,))[n][:-1], words[n:])

    def _add(self, key: Key, marks: Words) -> None:
        if key != self._key:
            self._settle()
            self._key = key
        self._new.append(marks)
        if sum(map(len, self._new)) >= PORTION:
            self._settle()

    def _settle(self) -> None:
        """Merge the new marks into the sorted rest, in portions, as each merge moves all of it."""
        new = np.unique(np.concatenate([NOTHING, *self._new]))
        self._new.clear()
        if not len(new):
            return
        before = self._known.pop(self._key, NOTHING)
        new = new[~_among(before, new)]
        known = self._known[self._key] = np.insert(before, np.searchsorted(before, new), new)[:MOST]
        self._size += len(known) - len(before)
        while self._size > MOST:
            self._size -= len(self._known.popitem(last=False)[1])


def _among(known: Words, marks: Words) -> NDArray[np.bool_]:
    """Return a mask of the shape of ``marks``: True for those in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(marks), np.bool_)
    nearest = np.minimum(np.searchsorted(known, marks), len(known) - 1)
    found: NDArray[np.bool_] = known[nearest] == marks
    return found


def _marks(hashes: Words, tokens: Words) -> Words:
    marks: Words = hashes * np.uint64(MULTIPLIER) + tokens + np.uint64(1)
    return marks


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
