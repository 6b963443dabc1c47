"""GGUF files and model directories in any directory, at any depth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from localspec.models.directory import CONFIG
from localspec.models.split import first_part, split_of
from localspec.models.stores.found import Found, entries, is_folder

MAX_ENTRIES = 200_000
MAX_DEPTH = 24


def scan_folder(root: Path) -> Iterator[Found]:
    """Every model under ``root``, GGUF files first; raises :class:`OSError` where it cannot be read.

    Links are followed, each directory is read once. Of a split model the first part stands for all.
    """
    files: dict[Path, Found] = {}
    folders: list[Found] = []
    left = MAX_ENTRIES
    for folder, names in _walk(root):
        left -= len(names)
        if left < 0:
            folders.append(_too_large(root))
            break
        if is_model_directory(names):
            folders.append(Found(folder, folder.name))
        for name in names:
            path = folder / name
            if name.lower().endswith(".gguf") and not os.path.isfile(path / CONFIG):
                files.setdefault(first_part(path), _file(path))
    yield from (files[path] for path in sorted(files))
    yield from sorted(folders)


def _too_large(root: Path) -> Found:
    return Found(
        root,
        root.name,
        problem=f"{root} has more than {MAX_ENTRIES} files: not all were searched",
        remedy="Set model_dirs to directories that contain models and few other files.",
    )


def is_model_directory(names: set[str]) -> bool:
    """Return True if a directory with these names in it is a model's."""
    return CONFIG in names and any(name.endswith(".safetensors") for name in names)


def _file(path: Path) -> Found:
    split = split_of(path)
    return Found(first_part(path), path.stem if split is None else split.stem)


def _walk(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """``root`` and each directory under it that can be read, with the names in it."""
    seen: set[tuple[int, int]] = set()
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            found = entries(folder)
        except OSError:
            if folder == root:
                raise
            continue
        yield folder, {entry.name for entry in found}
        if depth < MAX_DEPTH:
            waiting += [(folder / entry.name, depth + 1) for entry in reversed(found) if is_folder(entry)]
