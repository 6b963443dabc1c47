"""The number of oldest turns of a chat to drop so that the rest fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

CHARS = 4
"""assumed characters of a token before any text was counted"""


class Counted(NamedTuple):
    """A text's tokens and their number; the tokens are None if only their least number is known."""

    tokens: list[int] | None
    number: int


class _Known(NamedTuple):
    """The characters and the number of tokens of a text without its ``dropped`` oldest turns."""

    dropped: int
    size: int
    number: int


def fewest_dropped(
    sizes: Sequence[int], whole: int, room: int, encode: Callable[[int], Counted]
) -> tuple[int, Counted]:
    """Return the first ``n`` for which ``encode(n)`` has at most ``room`` tokens, and those; if none has, the
    last ``n``.

    ``sizes[n]`` are the characters of text ``n``, in falling order, and ``whole`` those of the whole chat,
    which does not fit. The texts are long, so few are encoded: the next one is chosen by the tokens per
    character of earlier ones, or is the middle one if the last choice has not halved the interval.
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
    """Return the first text between ``low`` and ``high`` that has ``room`` tokens or fewer, as estimated by
    a straight line between both."""
    per_token = (low.size - high.size) / max(1, low.number - high.number)
    size = high.size + (room - high.number) * per_token
    found = bisect_left(sizes, -size, key=lambda each: -each)
    return min(max(found, low.dropped + 1), high.dropped - 1)
