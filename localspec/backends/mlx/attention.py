"""The cells of one attention layer: a row for each sequence, which is rolled back independently of others.

mlx-lm's batch caches are aligned at their right end, so a row can only be rolled back by moving all of its
cells. Here a token's cell is determined by its position alone: a forward writes cells after each row's last
one, masks hide the cells after those, and a rollback moves nothing. On a CPU, a round of four rows with
4,096 tokens took 2.03 ms a layer instead of 101.24, and no more with longer ones. With a sliding window the
cells form a ring somewhat longer than the window, so that the cells needed after a rollback are still there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

STEP = 256
"""rows grow to a multiple of this many cells, a ring at most to its own size"""
GROWTH = 4
"""rows grow by at least one cell for this many that they have"""
GROUP = 64
"""numbers that share a scale where cells are quantised; fewer where a head has fewer"""

Parts = list[mx.array]
"""Cells of shape (rows, heads, cells, numbers): one array, or packed numbers, scales and biases."""


class ForwardStep:
    """One forward: ``width`` more cells for each of ``len(lengths)`` adjacent rows from ``first`` on."""

    def __init__(self, first: int, lengths: Sequence[int], width: int) -> None:
        self.first, self.lengths, self.width = first, list(lengths), width
        self.n = len(lengths)
        self.longest = max(lengths) + width
        self.offset: Any = self.lengths[0] if self.n == 1 else mx.array(self.lengths)
        """the position of each row's first new token"""
        self._masks: dict[tuple[int | None, int | None, bool], Any] = {}

    def mask(self, window: int | None, ring: int | None, *, as_array: bool) -> Any:
        """The cells that each new token attends to: None for all, "causal", or booleans of shape
        (rows, 1, width, cells)."""
        key = window, ring, as_array
        if key not in self._masks:
            simple = self.n == 1 and (window is None or self.longest <= window)
            if simple and (ring is None or self.longest <= ring) and not as_array:
                self._masks[key] = None if self.width == 1 else "causal"
            else:
                self._masks[key] = self._visible(window, ring)
        return self._masks[key]

    def _visible(self, window: int | None, ring: int | None) -> mx.array:
        cells = mx.arange(self.longest if ring is None else min(self.longest, ring))[None, None, None]
        starts = mx.array(self.lengths)[:, None, None, None]
        tokens = starts + mx.arange(self.width)[None, None, :, None]
        if ring is None:
            positions = cells
        else:
            newest = starts + self.width - 1
            positions = newest - (newest - cells) % ring
        visible = (positions <= tokens) & (positions >= 0)
        return visible if window is None else visible & (positions > tokens - window)


class Attention:
    """Keys and values of one layer. ``window``: the number of tokens that a token attends to, itself
    included; None: all. ``slack``: the most tokens of a forward. ``bits``: bits of a quantised number; 0: not
    quantised."""

    def __init__(self, window: int | None, *, slack: int, bits: int = 0) -> None:
        self.window, self.bits = window, bits
        self.ring = None if window is None else window + slack
        self._keys: Parts = []
        self._values: Parts = []

    def view(self, step: ForwardStep) -> AttentionView:
        """The object passed to the model as this layer's cache, for one forward."""
        return QuantisedView(self, step) if self.bits else AttentionView(self, step)

    def append(self, step: ForwardStep, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write the new tokens' keys and values, each (rows, heads, width, numbers); return all cells."""
        self._keys = self._write(self._keys, self._parts(keys), step)
        self._values = self._write(self._values, self._parts(values), step)
        return self.cells(step)

    def cells(self, step: ForwardStep) -> tuple[Any, Any]:
        """Keys and values of the step's rows, up to the length of the longest."""
        n = step.longest if self.ring is None else min(step.longest, self.ring)
        rows = slice(step.first, step.first + step.n)
        keys, values = ([part[rows, :, :n] for part in parts] for parts in (self._keys, self._values))
        return (tuple(keys), tuple(values)) if self.bits else (keys[0], values[0])

    def _parts(self, numbers: mx.array) -> Parts:
        if not self.bits:
            return [numbers]
        return list(mx.quantize(numbers, group_size=group_size(numbers.shape[-1]), bits=self.bits))

    def _write(self, parts: Parts, new: Parts, step: ForwardStep) -> Parts:
        parts = self._with_room(parts, new, step)
        for part, fresh in zip(parts, new, strict=True):
            for i, length in enumerate(step.lengths):
                place = step.first + i
                for cell, start, stop in self._runs(length, step.width):
                    whole = step.n == 1 and stop - start == step.width
                    piece = fresh if whole else fresh[i : i + 1, :, start:stop]
                    part[place : place + 1, :, cell : cell + stop - start] = piece
        return parts

    def _runs(self, length: int, width: int) -> Iterator[tuple[int, int, int]]:
        """Yield (first cell, from token, to token) of each contiguous write: a ring's end splits it."""
        start = 0
        while start < width:
            cell = length + start if self.ring is None else (length + start) % self.ring
            stop = width if self.ring is None else min(width, start + self.ring - cell)
            yield cell, start, stop
            start = stop

    def _with_room(self, parts: Parts, new: Parts, step: ForwardStep) -> Parts:
        rows, cells = parts[0].shape[::2][:2] if parts else (0, 0)
        wanted_rows = max(rows, step.first + step.n)
        wanted = step.longest if self.ring is None else min(step.longest, self.ring)
        if wanted > cells:
            wanted = max(wanted, cells + cells // GROWTH)
            wanted = -(-wanted // STEP) * STEP
            wanted = wanted if self.ring is None else min(wanted, self.ring)
        wanted = max(wanted, cells)
        if (wanted_rows, wanted) == (rows, cells):
            return parts
        return [
            _grow(parts[i] if parts else None, (wanted_rows, fresh.shape[1], wanted, fresh.shape[3]), fresh)
            for i, fresh in enumerate(new)
        ]

    def row(self, place: int, length: int) -> Parts:
        """The cells of one row that holds ``length`` tokens."""
        n = length if self.ring is None else self.ring
        return [part[place : place + 1, :, :n] for part in self.arrays()]

    def set_row(self, place: int, cells: Parts) -> None:
        """Write ``cells``, made by :meth:`row`, to row ``place``; raises ValueError if they do not fit."""
        old = self.arrays() or [None] * len(cells)
        self.set([self._place_row(place, *each) for each in zip(old, cells, strict=True)])

    def _place_row(self, place: int, old: mx.array | None, row: mx.array) -> mx.array:
        rows, cells = (0, 0) if old is None else old.shape[::2]
        shape = max(rows, place + 1), row.shape[1], max(cells, row.shape[2]), row.shape[3]
        part = _grow(old, shape, row)
        part[place : place + 1, :, : row.shape[2]] = row
        return part

    def rearrange(self, order: Sequence[int]) -> Parts:
        """The cells for :meth:`set`, in which row i is what row ``order[i]`` was."""
        # A row that was never written to may be missing: any other row can stand in.
        return [part[mx.array([min(row, part.shape[0] - 1) for row in order])] for part in self.arrays()]

    def set(self, cells: Parts) -> None:
        """Replace the cells of all rows by ``cells``, in the order of :meth:`arrays`."""
        half = len(cells) // 2
        self._keys, self._values = cells[:half], cells[half:]

    def clear(self) -> None:
        self._keys, self._values = [], []

    def arrays(self) -> Parts:
        """The arrays to evaluate after a forward: all keys, then all values."""
        return [*self._keys, *self._values]


def group_size(numbers: int) -> int:
    """The number of quantised numbers that share a scale."""
    return GROUP if numbers % GROUP == 0 else 32


def _grow(old: mx.array | None, shape: tuple[int, ...], like: mx.array) -> mx.array:
    """Return ``old`` padded with zeros to ``shape``, or zeros if it is None."""
    if old is not None and old.shape == shape:
        return old
    new = mx.zeros(shape, like.dtype)
    if old is not None:
        new[: old.shape[0], :, : old.shape[2]] = old
    return new


class AttentionView:
    """The interface that mlx-lm expects of a cache, for one forward."""

    def __init__(self, layer: Attention, step: ForwardStep) -> None:
        self._layer, self._step = layer, step
        self.offset = step.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        self.offset = self.offset + keys.shape[2]
        return self._layer.append(self._step, keys, values)

    def keys_and_values(self) -> tuple[Any, Any]:
        return self._layer.cells(self._step)

    @property
    def state(self) -> tuple[Any, Any]:
        return self._layer.cells(self._step)

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        window = window_size or self._layer.window
        return self._step.mask(window, self._layer.ring, as_array=return_array)

    def size(self) -> int:
        return max(self._step.lengths)

    def empty(self) -> bool:
        return not self.size()


class QuantisedView(AttentionView):
    """A view with ``bits`` and ``group_size``, by which mlx-lm computes attention over quantised cells."""

    def __init__(self, layer: Attention, step: ForwardStep) -> None:
        super().__init__(layer, step)
        self.bits = layer.bits

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        self.group_size = group_size(keys.shape[-1])
        return super().update_and_fetch(keys, values)
