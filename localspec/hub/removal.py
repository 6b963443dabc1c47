"""Removal of models that localspec downloaded, and of nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from localspec.errors import ModelNotFound, NotPulled, StorageError
from localspec.hub import records
from localspec.hub.records import HubFile, Pulled, size_of
from localspec.models import library
from localspec.models.model import place_of
from localspec.models.stores import TITLES


def find(name: str, model_dirs: Sequence[str] = ()) -> tuple[Pulled, ...]:
    """The downloads of this name: as it was pulled, of its repository or a file, or a path; else what the
    name stands for in the library.

    Raises :class:`NotPulled` for a model that localspec did not download, and what the library does.
    """
    pulled, wanted, place = records.read(), name.lower(), place_of(Path(name))
    if found := tuple(each for each in pulled if wanted in _names(each) or place in _places(each)):
        return found
    try:
        model = library.find(name, model_dirs)
    except ModelNotFound as error:
        names = ", ".join(sorted({each.name for each in pulled})) or "none so far"
        raise ModelNotFound(error.message, f"Downloaded by localspec: {names}.") from None
    if found := tuple(each for each in pulled if model.place in _places(each)):
        return found
    store = model.description.store
    where = f"it is in {TITLES.get(store, store)}: {model.path}" if store else f"it is {model.path}"
    raise NotPulled(f"{model.name} was not downloaded by localspec; {where}")


def _names(pulled: Pulled) -> set[str]:
    files = (name for path in pulled.paths for name in (path.name, path.stem))
    return {name.lower() for name in (pulled.name, pulled.repo, *files)}


def _places(pulled: Pulled) -> set[str]:
    """The places of a model's files, complete or partial."""
    return {place_of(path) for path in (*pulled.paths, *map(pulled.partial, pulled.files))}


def remove(pulled: Sequence[Pulled]) -> int:
    """Delete the files of these, except those that another model needs; returns the bytes freed.

    Raises :class:`HubBusy` while one of them is being downloaded.
    """
    freed = 0
    needed = {each.entry(file) for each in records.read() if each not in pulled for file in each.files}
    for each in pulled:
        try:
            freed += sum(_delete(each, file) for file in each.files if each.entry(file) not in needed)
        except OSError as error:
            raise StorageError(
                f"{each.folder} cannot be changed: {error.strerror}",
                "Look at the directory, and delete by hand what you do not need.",
            ) from None
        _tidy(each)
    records.forget(tuple(pulled))
    return freed


def _delete(model: Pulled, file: HubFile) -> int:
    """Delete a file from its snapshot, and its content unless another snapshot uses it."""
    entry, blob = model.entry(file), model.blob(file)
    with model.holding(file):
        freed = 0 if entry.is_symlink() else max(0, size_of(entry))
        entry.unlink(missing_ok=True)
        used = any(path.resolve() == blob.resolve() for path in (model.folder / "snapshots").rglob("*"))
        for path in (model.partial(file), *(() if used else (blob,))):
            freed += max(0, size_of(path))
            path.unlink(missing_ok=True)
        model.partial(file).with_suffix(".wheel").unlink(missing_ok=True)
    return freed


def _tidy(model: Pulled) -> None:
    """Remove directories that are empty now, the innermost first, and the name of a commit that is gone."""
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(model.snapshot, topdown=False):
            os.rmdir(folder)
        if model.ref.read_text() == model.commit:
            model.ref.unlink()
    for name in ("refs", "snapshots", "blobs", ""):
        with contextlib.suppress(OSError):
            os.rmdir(model.folder / name)
