"""Outputs that are either complete or absent, so that a stage can be skipped by looking."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a sibling to write (file or directory); it takes the place of `path` at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    yield partial
    if partial.is_file():
        with partial.open("rb") as written:
            os.fsync(written.fileno())  # a rename must not reach the disk before the bytes do
    os.replace(partial, path)
