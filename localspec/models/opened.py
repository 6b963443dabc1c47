"""Files that are mapped while a model is used: overwriting them in place changes the loaded model."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from localspec.errors import ModelChanged, ModelNotFound

INTERVAL_S = 0.02


class Stamp(NamedTuple):
    """The size in bytes and the time of the last change in ns, of a file's content."""

    size: int
    changed_ns: int


class OpenedFiles:
    """Files as they were when this was made; each is held open, so that a new file of the same name is
    not taken for it.

    Raises :class:`ModelNotFound` for one that is not there.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._files: list[tuple[int, Path, Stamp]] = []
        self._checked = -math.inf
        try:
            for path in paths:
                descriptor = os.open(path, os.O_RDONLY)
                self._files.append((descriptor, path, _stamp(descriptor)))
        except OSError as error:
            self.close()
            raise ModelNotFound(f"{error.filename} cannot be opened: {error.strerror}") from None

    def check_sometimes(self) -> None:
        """As :meth:`check`, at most once in :data:`INTERVAL_S`: for the hot path."""
        if time.monotonic() - self._checked >= INTERVAL_S:
            self.check()

    def check(self) -> None:
        """Raise :class:`ModelChanged` where a file is not as it was. Some microseconds a file."""
        self._checked = time.monotonic()
        for descriptor, path, before in self._files:
            now = _stamp(descriptor)
            if now != before:
                sizes = f"; it had {before.size} bytes, and has {now.size}" if now.size != before.size else ""
                self._checked = -math.inf
                raise ModelChanged(f"{path} was overwritten while it was in use{sizes}")

    def close(self) -> None:
        """Close the files; nothing is checked from then on."""
        while self._files:
            os.close(self._files.pop()[0])


def _stamp(descriptor: int) -> Stamp:
    found = os.fstat(descriptor)
    return Stamp(found.st_size, found.st_mtime_ns)
