"""Directories for memories that only the benchmark has."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

VOCABULARY = "benchmark"
"""whose memories they are: all models of a benchmark share one vocabulary"""


@cache
def scratch_root() -> Path:
    """What holds them all; removed when the process ends, even if an interruption cut a cleaning short."""
    root = Path(tempfile.mkdtemp(prefix="localspec-bench-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


@contextmanager
def scratch_memory(copy_of: Path | None = None) -> Iterator[Path]:
    """A memory's directory that nobody else has: empty, or a copy."""
    place = Path(tempfile.mkdtemp(dir=scratch_root()))
    try:
        if copy_of is not None:
            shutil.copytree(copy_of, place, dirs_exist_ok=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
