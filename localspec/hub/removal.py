"""Removal of models that localspec downloaded, and of nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import CachedRevisionInfo, HFCacheInfo, scan_cache_dir
from msgspec.structs import replace

from localspec.errors import ModelAmbiguous, ModelNotFound, NotPulled, StorageError
from localspec.hub import records
from localspec.hub.cache import Place
from localspec.hub.download import holding
from localspec.hub.listing import HubFile
from localspec.hub.records import Pulled
from localspec.models import library
from localspec.models.disk import recent_disk
from localspec.models.model import place_of
from localspec.models.stores.mending import kept, removed
from localspec.protocol.messages import ModelDescription

BY_HAND = "Look at the directory, and delete by hand what you do not need."


def find(name: str, model_dirs: Sequence[str] = ()) -> tuple[Pulled, ...]:
    """The downloads of this name: as it was pulled, that of its repository or of a file, or any that the
    library has; for incomplete ones also the beginning of a name.

    Raises :class:`NotPulled` for models that localspec did not download, :class:`ModelNotFound` for no model
    at all, and :class:`ModelAmbiguous` for several, also if localspec downloaded only one of them.
    """
    pulled, wanted = records.read(), name.lower()
    if found := _named(wanted, pulled):
        return found
    models = _meant(name, model_dirs)
    broken = all(model.problem is not None for model in models.values())
    found = tuple(
        each
        for each in pulled
        if not models.keys().isdisjoint(_places(each)) or (broken and _begins(each, wanted))
    )
    ours = {place for each in found for place in _places(each)}
    others = [model for place, model in models.items() if place not in ours]
    if not found and others:
        other = others[0]
        raise NotPulled(f"{other.names[0]} was not downloaded by localspec; {kept(other)}", removed(other))
    if not found:
        known = ", ".join(sorted({each.name for each in pulled})) or "none so far"
        raise ModelNotFound(
            f"there is no model named {name!r}", f"Models that localspec downloaded: {known}."
        )
    names = {each.name for each in found} | {model.names[0] for model in others}
    if len(names) > 1:
        raise ModelAmbiguous(f"{name!r} is ambiguous: it may be {', '.join(sorted(names))}")
    return found


def _meant(name: str, model_dirs: Sequence[str]) -> dict[str, ModelDescription]:
    """The models that the name may mean, complete or broken, by their places; empty without any."""
    if found := library.meant(name, recent_disk(model_dirs).found):
        return {each.place: each.description for each in found}
    try:
        one = library.listed(library.find(name, model_dirs), model_dirs)
    except ModelNotFound:
        return {}
    return {one.place: one.known or replace(one.described(name), names=(name,))}


def _places(pulled: Pulled) -> set[str]:
    """The places of a model's files, complete or partial."""
    partials = (pulled.place.partial(file) for file in pulled.files)
    return {place_of(path) for path in (*paths_of(pulled), *partials)}


def is_pulled(path: Path) -> bool:
    """Return True if localspec downloaded the model at a path, or a part of it."""
    return any(place_of(path) in _places(each) for each in records.read())


def _named(name: str, pulled: Sequence[Pulled]) -> tuple[Pulled, ...]:
    return tuple(
        [each for each in pulled if name == each.name.lower()]
        or [each for each in pulled if name == each.repo.lower()]
        or [each for each in pulled if name in _file_names(each)]
    )


def _begins(pulled: Pulled, name: str) -> bool:
    return any(text.startswith(name) for text in (pulled.name.lower(), *_file_names(pulled)))


def _file_names(pulled: Pulled) -> list[str]:
    return [name.lower() for path in paths_of(pulled) for name in (path.name, path.stem)]


def paths_of(pulled: Pulled) -> tuple[Path, ...]:
    """The paths of a download that can be given as a model."""
    if pulled.format == "mlx":
        return (pulled.place.snapshot,)
    return tuple(pulled.place.entry(file) for file in pulled.files)


def remove(pulled: Sequence[Pulled]) -> int:
    """Delete the files of these, except those that another model needs; returns the bytes freed.

    Raises :class:`StorageError` where the library does not recognise the state of the cache.
    """
    freed = 0
    kept = {(each.place, file) for each in records.read() if each not in pulled for file in each.files}
    for each in pulled:
        place = each.place
        files = [file for file in each.files if (place, file) not in kept]
        try:
            freed += sum(_drop_partial(place, file) for file in files)
            freed += _delete(place, {place.entry(file) for file in files})
        except OSError as error:
            raise StorageError(f"{place.folder} cannot be changed: {error.strerror}", BY_HAND) from None
        _tidy(place)
    records.forget(tuple(pulled))
    return freed


def _drop_partial(place: Place, file: HubFile) -> int:
    """Delete the part of an incomplete file; raises :class:`HubBusy` while it is being downloaded."""
    if not os.path.lexists(place.partial(file)):
        return 0
    with holding(place, file):
        size = 0 if place.has(file) else place.so_far(file)
        place.partial(file).unlink(missing_ok=True)
    return size


def _delete(place: Place, entries: set[Path]) -> int:
    """Delete entries of a snapshot, and the blobs that no other entry uses, as the library finds them."""
    if not place.snapshot.is_dir():
        return 0
    cache = scan_cache_dir(place.root)
    revision = _revision(cache, place)
    ours = [file for file in revision.files if file.file_path in entries]
    strategy = cache.delete_files(*ours)
    if len(ours) == len(revision.files) and not _has_partial_files(place):
        strategy = cache.delete_revisions(place.commit)
    strategy.execute()
    if left := [path for path in entries if os.path.lexists(path)]:
        raise StorageError(f"{left[0]} could not be removed", BY_HAND)
    return strategy.expected_freed_size


def _revision(cache: HFCacheInfo, place: Place) -> CachedRevisionInfo:
    for repo in cache.repos:
        for revision in repo.revisions:
            if revision.snapshot_path.resolve() == place.snapshot.resolve():
                return revision
    raise StorageError(
        f"huggingface_hub does not recognise {place.snapshot}, so nothing was removed from it: the model is "
        "still on disk",
        BY_HAND,
    )


def _has_partial_files(place: Place) -> bool:
    return any(place.blobs.glob("*.incomplete"))


def _tidy(place: Place) -> None:
    """Remove directories that an interrupted download left empty, the innermost first."""
    for folder in (place.snapshot, place.folder / "snapshots", place.blobs, place.folder):
        try:
            os.rmdir(folder)
        except OSError:
            return
