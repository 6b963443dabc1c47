"""One model as a store has it, before anything of it is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

UNFINISHED = "its download was not completed"


class Found(NamedTuple):
    """``id`` is what it is called there, ``hint`` more words of its name, such as its repository's;
    ``digest`` is its content's sha256 where the store knows it. Of a problem without a remedy the store tells
    one."""

    path: Path
    id: str
    hint: str = ""
    digest: str | None = None
    problem: str | None = None
    remedy: str | None = None


def unfinished(path: Path, id: str, hint: str = "") -> Found:
    """A download that is not there in full; the name of a repository's blob would tell nobody anything."""
    what = hint if hint and path.suffix == ".incomplete" else path.name
    return Found(path, id, hint, problem=f"{UNFINISHED}: {what}")


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a directory, by name; raises :class:`OSError`."""
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this is a directory, or a link to one."""
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


SHA256 = re.compile(r"[0-9a-f]{64}")
