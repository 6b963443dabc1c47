"""Files that are mapped while a model is used: whoever overwrites them in place changes the model itself."""

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
    """Files as they were when this was made; each is held open, so that a new file which takes the name of
    one is not taken for it.

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
        """As :meth:`check`, where the last one was :data:`INTERVAL_S` ago: for the hot path."""
        if time.monotonic() - self._checked >= INTERVAL_S:
            self.check()

    def check(self) -> None:
        """Raises :class:`ModelChanged` where one is not what it was. Some microseconds a file."""
        self._checked = time.monotonic()
        for descriptor, path, before in self._files:
            now = _stamp(descriptor)
            if now != before:
                told = f"; it had {before.size} bytes, and has {now.size}" if now.size != before.size else ""
                self._checked = -math.inf
                raise ModelChanged(f"{path} was overwritten while it was in use{told}")

    def close(self) -> None:
        """Let the files go; nothing is checked from then on."""
        while self._files:
            os.close(self._files.pop()[0])


def _stamp(descriptor: int) -> Stamp:
    found = os.fstat(descriptor)
    return Stamp(found.st_size, found.st_mtime_ns)
