"""The price of a width on a device where a change of the width costs time.

Such a device replays the graph of the last forwards, and prepares a new one for another width. Whether a
change pays depends on the rounds that follow: the worth of each width, once it is there, is learnt from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

GAIN = 0.2
"""share of a round's evidence that goes into the worth of a width"""

Seconds = NDArray[np.float64]


class Switching:
    """Prices the widths of one round after another, by relative values of a Markov decision process: the
    state is the width of the last forward, ``_worth[w]`` the seconds that w saves in later rounds, compared
    with a width of 1. At first a change is expected to be undone at once."""

    def __init__(self) -> None:
        self._worth: Seconds = np.zeros(0)

    def price(self, line: Sequence[float], changes: Sequence[float], last: int) -> list[float]:
        """Return the seconds of a forward by its width, its effect on later rounds included, and padded where
        that is cheaper. ``line[w]`` are the seconds where the width stays, ``changes[w]`` what a change to it
        costs, ``last`` is the width before; 0: a forward of another kind."""
        if not len(self._worth):
            self._worth = np.where(np.arange(len(changes)) == 1, 0.0, -changes[1])
        self._line, self._changes = np.array(line), np.array(changes[: len(line)])
        seconds = self._line + self._changes + (self._worth[last] if last else 0.0) - self._worth[: len(line)]
        if last < len(line):
            seconds[last] -= self._changes[last]
        self._seconds = np.maximum(seconds, self._line[1] / 2)
        padded: list[float] = np.minimum.accumulate(self._seconds[::-1])[::-1].tolist()
        return padded

    def pad(self, width: int) -> tuple[int, float]:
        """Return the width, this one or a wider one, of the least price; and the seconds that it adds."""
        wide = width + int(np.argmin(self._seconds[width:]))
        return wide, float(self._line[wide] - self._line[width])

    def learn(self, drafts: Iterable[tuple[Sequence[float], float, float]]) -> None:
        """Learn from a round and its ``drafts``, made or not: of each the probabilities that the first 1, 2,
        … tokens are right, and the seconds of drafting one and of each further token."""
        worth, plain = self._worth[1 : len(self._line)], self._line[1]
        gain = np.full(len(worth), plain)
        for survival, first, step in drafts:
            tokens = np.array(survival[: len(worth) - 1])
            draft = plain * (1.0 + np.cumsum(tokens)) - first - step * np.arange(len(tokens))
            gain[1 : len(tokens) + 1] = np.maximum(gain[1 : len(tokens) + 1], draft)
        stays = np.maximum.accumulate(gain) - self._line[1:] + worth
        value = np.maximum(stays, (stays - self._changes[1:]).max())
        worth += GAIN * (value - value[0] - worth)
