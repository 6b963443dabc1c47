"""The rows of one forward, which stay on the device until they are read."""

from __future__ import annotations

from math import isfinite
from typing import Any

import mlx.core as mx
import numpy as np

from localspec.backends.base import Rows
from localspec.errors import EngineError

FAULTS = (RuntimeError, ValueError, TypeError, IndexError)
"""the exceptions that MLX raises"""


class MlxLogits:
    """``rows`` of shape (n, vocabulary size). The results that a round needs are computed on the device,
    together with ``cells`` that the forward wrote, while Python goes on; ``best``, of shape (n, 1), can be
    fed to the next forward without being read first."""

    def __init__(self, rows: mx.array, cells: list[mx.array]) -> None:
        self._rows = rows
        self.were_seen = False
        """True if whole rows were read, to choose other than greedily"""
        if not rows.shape[0]:
            self.best, self._peaks = mx.zeros((0, 1), mx.uint32), mx.zeros((0,))
            self._margins = self._peaks
            mx.async_eval(cells)
            return
        self.best = mx.argmax(rows, axis=-1, keepdims=True)
        self._peaks, self._margins = _peaks_and_margins(rows, self.best)
        mx.async_eval(self.best, self._peaks, self._margins, *cells)

    def argmax(self) -> list[int]:
        # Read only: a computation on it would wait for the step that was begun after it.
        return [token for (token,) in _read(self.best)]

    def margins(self) -> list[float]:
        found: list[float] = _read(self._margins)
        return found

    def choice(self, i: int) -> int | None:
        return self.argmax()[i] if isfinite(_read(self._peaks)[i]) else None

    def rows(self, start: int, stop: int) -> Rows:
        self.were_seen = True
        try:
            return np.array(self._rows[start:stop].astype(mx.float32))
        except FAULTS as error:
            raise EngineError(f"MLX failed to compute a forward: {error}") from None

    def row(self, i: int) -> Rows:
        return np.asarray(self.rows(i, i + 1)[0])


def _read(array: mx.array) -> Any:
    """Return an array's numbers; raises :class:`EngineError`: MLX reports a computation's errors only now."""
    try:
        return array.tolist()
    except FAULTS as error:
        raise EngineError(f"MLX failed to compute a forward: {error}") from None


def _peaks_and_margins(rows: mx.array, best: mx.array) -> tuple[mx.array, mx.array]:
    """Return top-1, and top-1 minus top-2, of each row: two passes over it instead of a sort."""
    numbers = rows.astype(mx.float32)
    top = mx.take_along_axis(numbers, best, axis=-1)
    others = mx.put_along_axis(numbers, best, mx.array(-mx.inf), axis=-1)
    return top[:, 0], (top - others.max(axis=-1, keepdims=True))[:, 0]
