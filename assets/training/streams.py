"""Batches out of the streams' rows: a function of the seed and the step alone."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .examples import TAUGHT, Row, Rows, read_rows
from .presets import Phase, Stream

UNTAUGHT = -100  # the target that cross-entropy leaves out


class StreamRows:
    """The rows of one stream, every epoch in another order."""

    def __init__(self, path: Path, stream: Stream, seed: int) -> None:
        self._rows: Rows = read_rows(path, stream.window)
        self._seed, self._name = seed, stream.name
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def row(self, number: int) -> Row:
        """The `number`-th row since the beginning of the training."""
        epoch, index = divmod(number, len(self._rows))
        if epoch != self._epoch:
            rng = np.random.default_rng([self._seed, epoch, *self._name.encode()])
            self._order = rng.permutation(len(self._rows))
            self._epoch = epoch
        return self._rows[self._order[index]]


class Batches:
    """The batches of a phase; each stream goes on where the phases before it left it."""

    def __init__(
        self, folder: Path, streams: tuple[Stream, ...], phases: tuple[Phase, ...], index: int, seed: int
    ) -> None:
        by_name = {stream.name: stream for stream in streams}
        self._rows = phases[index].rows
        self._before = {
            name: sum(phase.rows.get(name, 0) * phase.steps for phase in phases[:index])
            for name in self._rows
        }
        self._windows = {name: by_name[name].window for name in self._rows}
        self._streams = {name: StreamRows(folder / f"{name}.bin", by_name[name], seed) for name in self._rows}

    def batches(self, step: int) -> list[tuple[Tensor, Tensor]]:
        """The step's inputs and targets, int64 [rows, window] of each window, shortest first."""
        rows: dict[int, list[Row]] = {}
        for name, count in self._rows.items():
            first = self._before[name] + step * count
            chosen = [self._streams[name].row(first + index) for index in range(count)]
            rows.setdefault(self._windows[name], []).extend(chosen)
        return [split_rows(np.stack(rows[window])) for window in sorted(rows)]


def split_rows(rows: Rows) -> tuple[Tensor, Tensor]:
    """Inputs and next tokens, both int64 [rows, window]; UNTAUGHT where nothing is taught."""
    ids = (rows & (TAUGHT - 1)).astype(np.int64)
    targets = np.where(rows & TAUGHT, ids, UNTAUGHT)
    return torch.from_numpy(ids[:, :-1]), torch.from_numpy(targets[:, 1:])
