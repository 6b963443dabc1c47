"""The directories that localspec writes to: usable, with free space."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from localspec import home
from localspec.doctor.finding import Finding, problem_of
from localspec.errors import LocalspecError
from localspec.units import GB, MB, size

LITTLE, NOTHING = GB, 16 * MB
"""free bytes of a disk; below the second the first table of n-grams, or a chat's cache, may not fit"""
STEP = "Free disk space: `localspec models rm NAME` removes a downloaded model, `localspec config set "
STEP += "chat_cache_mb 0` keeps no caches of chats."


def disk() -> Iterator[Finding]:
    """Check that each directory can be created and written, and the free space of each disk."""
    disks: dict[int, list[Path]] = {}
    for place in (home.data_dir, home.cache_dir, home.state_dir, home.runtime_dir):
        try:
            path = _writable(place())
            disks.setdefault(os.stat(path).st_dev, []).append(path)
        except LocalspecError as error:
            yield problem_of("disk", error)
    for paths in disks.values():
        yield room(shutil.disk_usage(paths[0]).free, ", ".join(map(str, paths)))


def _writable(path: Path) -> Path:
    """Create a file in ``path`` and return ``path``; raises :class:`LocalspecError`."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        remedy = f"Run `chmod 700 '{path}'`, or set LOCALSPEC_HOME to a directory you can write to."
        raise LocalspecError(f"{path} cannot be written: {error.strerror}", remedy) from None


def room(free: int, places: str) -> Finding:
    """Check the free bytes of a disk with these places."""
    sentence = f"{size(free)} are free for {places}."
    if free >= LITTLE:
        return Finding("disk", "ok", sentence)
    return Finding("disk", "warning" if free >= NOTHING else "problem", sentence, STEP)
