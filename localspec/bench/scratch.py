"""Temporary directories for the benchmark's n-gram memories."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

VOCABULARY = "benchmark"
"""the vocabulary of these memories: all models of a benchmark share one"""


@cache
def scratch_root() -> Path:
    """The parent of all; removed at the end of the process, even if an interrupt cut a removal short."""
    root = Path(tempfile.mkdtemp(prefix="localspec-bench-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


@contextmanager
def scratch_memory(copy_of: Path | None = None) -> Iterator[Path]:
    """A temporary directory for one memory: empty, or a copy."""
    place = Path(tempfile.mkdtemp(dir=scratch_root()))
    try:
        if copy_of is not None:
            shutil.copytree(copy_of, place, dirs_exist_ok=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
