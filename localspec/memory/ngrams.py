"""N-grams: their hashes, and those of texts that are learnt, without secrets, in short steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.memory.secrets import secret_spans

ORDERS = (16, 8, 5, 3)
"""the n of the n-grams, longest first: the order in which they are looked up"""
MULTIPLIER = 6364136223846793005
"""Knuth's multiplier (MMIX) of the rolling hash"""
WORD = (1 << 64) - 1
INVERSE = pow(MULTIPLIER, -1, 1 << 64)
HIGHEST = pow(MULTIPLIER, ORDERS[0], 1 << 64)
"""the factor of the newest token in a hash of the longest order"""

STEP = 64
"""tokens per step"""
PIECES = 1024

Words = NDArray[np.uint64]


def hashes_of(context: Sequence[int], orders: Sequence[int] = ORDERS) -> tuple[int, ...]:
    """The hashes of the last n tokens for every order, longest first. One pass from the newest token
    backwards, so that order n extends order n - 1. A context too short for the longest orders gives the
    hashes of the others: the result always ends with the shortest. Each token is multiplied at least once:
    the upper bits of a hash depend on all tokens."""
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


class MemoryText(NamedTuple):
    tokens: Sequence[int]
    """not to be changed afterwards"""
    workspace: str | None
    """the path of the workspace whose table learns it; None: the user-wide table"""
    source: str
    """the origin of the text, such as ``chat:<session>``, ``run`` or ``file:<path>``"""
    earlier: int = 0
    """tokens of earlier texts before it, which are not learnt again; they show which others are secrets"""


class NgramBatch(NamedTuple):
    """The n-grams of one order: ``tokens[i]`` followed the n tokens of ``hashes[i]``."""

    order: int
    hashes: Words
    tokens: Words


def steps(
    tokens: Sequence[int],
    piece: Callable[[int], bytes],
    withhold: Callable[[int], None] = lambda count: None,
    earlier: int = 0,
) -> Iterator[list[NgramBatch]]:
    """The n-grams of a text after its ``earlier`` tokens, without those that touch a secret; an empty list is
    a step of preparation. ``withhold`` is called with the number of tokens of secrets."""
    public = yield from _public(tokens, piece)
    withhold(len(public[earlier:]) - int(public[earlier:].sum()))
    public[: max(0, earlier - ORDERS[0])] = False
    words = np.asarray(tokens, np.uint64)
    for start, end in _runs(public):
        for first in range(start, end, STEP):
            known = min(first - start, ORDERS[0])
            yield _grams(words[first - known : min(end, first + STEP)], known)


def _grams(words: Words, known: int) -> list[NgramBatch]:
    """The n-grams with a continuation after the first ``known`` tokens."""
    found = []
    for n, hashes in hashes_in(words).items():
        first = max(known, n)
        found.append(NgramBatch(n, hashes[first - n : -1], words[first:]))
    return found


def _public(
    tokens: Sequence[int], piece: Callable[[int], bytes]
) -> Generator[list[NgramBatch], None, NDArray[np.bool_]]:
    """A mask of the tokens: True for those that share no byte with a secret."""
    pieces: list[bytes] = []
    for start in range(0, len(tokens), PIECES):
        pieces += map(piece, tokens[start : start + PIECES])
        yield []
    ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
    starts = np.concatenate(([0], ends[:-1]))
    public = np.ones(len(tokens), np.bool_)
    for spans in secret_spans(b"".join(pieces)):
        for start, end in spans:
            public[np.searchsorted(ends, start, "right") : np.searchsorted(starts, end, "left")] = False
        yield []
    return public


def _runs(public: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The (start, end) of every stretch of True."""
    edges = np.flatnonzero(np.diff(public, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
