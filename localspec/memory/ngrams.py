"""The n-grams of texts that are learnt, without secrets, in steps of well under a millisecond."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.memory.hashing import ORDERS, Words, hashes_in
from localspec.memory.secrets import secret_spans

STEP = 64
"""tokens per step"""
PIECES = 1024


class MemoryText(NamedTuple):
    """A text to learn."""

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
    a step of preparation.

    ``withhold`` is called with the number of tokens of secrets.
    """
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
