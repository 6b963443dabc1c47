"""The Hugging Face hub's cache, which llama.cpp uses as well: ``models--org--name/snapshots/<revision>/…``.

huggingface_hub's own ``scan_cache_dir`` takes as long to import (0.1 s) as a whole listing may take, and
measures every file of every repository; this part of the layout is enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from localspec.errors import ModelError
from localspec.models.bounded import read_bounded
from localspec.models.stores.folder import scan_folder
from localspec.models.stores.found import SHA256, Found, entries, is_folder, subfolders

PREFIX = "models--"
MAX_REVISION = 1024


def scan_hub(root: Path) -> Iterator[Found]:
    """Every model in a hub cache; raises :class:`OSError` where it cannot be read."""
    for entry in entries(root):
        if entry.name.startswith(PREFIX) and is_folder(entry):
            yield from _repository(Path(entry.path))


def repository_of(path: Path) -> str | None:
    """The ``org/name`` that a path in a hub cache belongs to; None for one anywhere else."""
    folder = next((part for part in reversed(path.parts) if part.startswith(PREFIX)), None)
    return None if folder is None else folder.removeprefix(PREFIX).replace("--", "/")


def _repository(folder: Path) -> Iterator[Found]:
    name = repository_of(folder) or folder.name
    seen = set[Path]()
    for snapshot in _snapshots(folder):
        try:
            for found in (_named(each, snapshot, name) for each in scan_folder(snapshot)):
                # A file is taken from the first revision that has it; others may have more files.
                place = found.path.relative_to(snapshot)
                if place not in seen:
                    yield found
                if found.problem is None:
                    seen.add(place)
        except OSError as error:
            yield Found(snapshot, _short(name), problem=f"{snapshot} cannot be read: {error.strerror}")


def _named(found: Found, snapshot: Path, name: str) -> Found:
    """A model of a snapshot, named by its repository where the path has only a revision."""
    id = _short(name) if found.path == snapshot else found.id
    blob = os.path.basename(os.path.realpath(found.path))
    if os.path.islink(found.path) and not os.path.exists(found.path):
        return Found(found.path, id, name, problem=f"its download was not completed: {found.path.name}")
    return found._replace(id=id, hint=name, digest=blob if SHA256.fullmatch(blob) else None)


def _snapshots(folder: Path) -> list[Path]:
    """The snapshots, that of ``main`` first."""
    try:
        main = read_bounded(folder / "refs" / "main", MAX_REVISION).decode(errors="replace").strip()
    except ModelError:
        main = ""
    return sorted(subfolders(folder / "snapshots"), key=lambda path: (path.name != main, path.name))


def _short(name: str) -> str:
    return name.rpartition("/")[2]
