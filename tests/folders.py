"""Folders that are gone when they are no longer needed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket in it."""
    path = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    yield path
    shutil.rmtree(path, ignore_errors=True)  # a daemon that ends takes its own files away meanwhile
