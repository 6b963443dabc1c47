"""llama.cpp's output buffer: the logits of the last forward."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from localspec.backends.base import Rows, top_margin
from localspec.backends.llama_cpp.devices import exported


class Output:
    """The output buffer of a context, of rows of ``size`` numbers."""

    def __init__(self, context: Any, size: int) -> None:
        self._context, self._size = context, size
        # The package's own function returns a pointer object, which takes longer to read than a number.
        self._address_of = exported("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)
        self._address = 0
        self._views: dict[int, Rows] = {}
        """by the number of rows, at the present address"""

    def logits(self, n: int) -> LlamaLogits:
        """Wait for the device, and return the first ``n`` rows."""
        address = self._address_of(self._context) if n else self._address
        if address != self._address:
            self._address, self._views = address, {}
        view = self._views.get(n)
        if view is None:
            buffer: Any = (ctypes.c_float * (n * self._size)).from_address(address) if n else b""
            view = self._views[n] = np.frombuffer(buffer, dtype=np.float32).reshape(n, self._size)
        return LlamaLogits(view)


class LlamaLogits:
    """A view of the rows that were requested, in their order; see :class:`localspec.backends.base.Logits`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._best: list[int] | None = None

    def argmax(self) -> list[int]:
        if self._best is None:
            self._best = self._rows.argmax(axis=-1).tolist()
        return self._best

    def peaks(self) -> list[float]:
        return [self._rows.item(i, token) for i, token in enumerate(self.argmax())]

    def margins(self) -> list[float]:
        return [top_margin(row) for row in self._rows]

    def rows(self, start: int, stop: int) -> Rows:
        return self._rows[start:stop].copy()
