"""Bounded reading of untrusted files: regular files only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def read_regular(path: Path | str, most: int, *, follow: bool = True) -> bytes | None:
    """A regular file's first ``most + 1`` bytes; None for a FIFO, a device, a directory, and, unless
    ``follow``, for a symbolic link. Never waits for a writer. Raises :class:`OSError`."""
    if not stat.S_ISREG(os.stat(path, follow_symlinks=follow).st_mode):
        return None  # opening a device may already have an effect
    flags = FLAGS if follow else FLAGS | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None  # the file was replaced between the two checks
        return file.read(most + 1)
