"""The oldest turns of a chat that must go for the rest to fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

CHARS = 4
"""characters that a token is taken to stand for while nothing is counted"""


class Counted(NamedTuple):
    """A text's tokens and their number; None for tokens of which only the least number is known."""

    tokens: list[int] | None
    number: int


class _Known(NamedTuple):
    """The size of a text and the number of its tokens, by how much was dropped."""

    dropped: int
    size: int
    number: int


def fewest_dropped(
    sizes: Sequence[int], whole: int, room: int, encode: Callable[[int], Counted]
) -> tuple[int, Counted]:
    """The first ``n`` for which ``encode(n)`` has at most ``room`` tokens, and those; if none has, the last.

    ``sizes`` are the characters that are left of each, in falling order, and ``whole`` those of all, which
    do not fit. Each text is long, so few are encoded: the next one is where the tokens per character of
    those before say, and in the middle where that has not halved what is left.
    """
    low, high = _Known(-1, whole, max(room + 1, whole // CHARS)), _Known(len(sizes), 0, 0)
    best = last = Counted([], 0)
    span, by_half = high.dropped - low.dropped, False
    while high.dropped - low.dropped > 1:
        middle = (low.dropped + high.dropped) // 2
        guess = middle if by_half else _guess(sizes, low, high, room)
        found = encode(guess)
        known = _Known(guess, sizes[guess], found.number)
        if found.number <= room:
            high, best = known, found
        else:
            low, last = known, found
        by_half = 2 * (high.dropped - low.dropped) > span
        span = high.dropped - low.dropped
    return (high.dropped, best) if high.dropped < len(sizes) else (low.dropped, last)


def _guess(sizes: Sequence[int], low: _Known, high: _Known, room: int) -> int:
    """The first between ``low`` and ``high`` whose size, as both say, makes ``room`` tokens."""
    per_token = (low.size - high.size) / max(1, low.number - high.number)
    size = high.size + (room - high.number) * per_token
    found = bisect_left(sizes, -size, key=lambda each: -each)
    return min(max(found, low.dropped + 1), high.dropped - 1)
