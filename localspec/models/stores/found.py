"""One model as a store lists it, before its files are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SHA256 = re.compile(r"[0-9a-f]{64}")


class Found(NamedTuple):
    """A model in a store: ``id`` is its name there, ``hint`` more words of it, such as its repository's name,
    ``digest`` its content's sha256 where the store has it. A problem without a remedy gets the store's."""

    path: Path
    id: str
    hint: str = ""
    digest: str | None = None
    problem: str | None = None
    remedy: str | None = None


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory, sorted by name; raises :class:`OSError`."""
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return True if this is a directory, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def subfolders(folder: Path) -> Iterator[Path]:
    """The directories in a directory; none where it cannot be read."""
    try:
        yield from (Path(entry.path) for entry in entries(folder) if is_folder(entry))
    except OSError:
        return


def files(folder: Path) -> Iterator[Path]:
    """The plain files in a directory, or links to some; none where it cannot be read."""
    try:
        found = entries(folder)
    except OSError:
        return
    yield from (Path(entry.path) for entry in found if os.path.isfile(entry.path))
