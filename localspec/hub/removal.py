"""Removing what localspec downloaded, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import CachedRevisionInfo, HFCacheInfo, scan_cache_dir

from localspec.errors import ModelAmbiguous, ModelNotFound, NotPulled, StorageError
from localspec.hub import records
from localspec.hub.cache import Place
from localspec.hub.download import holding
from localspec.hub.listing import HubFile
from localspec.hub.records import Pulled
from localspec.models.catalogue import find_model, place_of
from localspec.models.disk import recent_disk
from localspec.models.meaning import meant

BY_HAND = "Look into it, and delete by hand what you do not need."


def find(name: str, model_dirs: Sequence[str] = ()) -> tuple[Pulled, ...]:
    """What was downloaded under this name: as it was pulled, its repository's, a file's, or any that
    ``find_model`` knows; of what is not whole, the beginning of one, too. Of several nothing is chosen,
    whoever has the others.

    Raises :class:`NotPulled` for models that came some other way, :class:`ModelNotFound` for no model at all,
    and :class:`ModelAmbiguous`.
    """
    pulled, wanted = records.read(), name.lower()
    if found := _named(wanted, pulled):
        return found
    places = _places(name, model_dirs)
    found = tuple(each for each in pulled if not places.keys().isdisjoint(map(place_of, paths_of(each))))
    found = found or tuple(each for each in pulled if not places and _begins(each, wanted))
    names = {each.name for each in found}
    if found:  # beside what is another program's, too
        ours = {place_of(path) for each in found for path in paths_of(each)}
        names |= {called for place, called in places.items() if place not in ours}
    if len(names) > 1:
        raise ModelAmbiguous(f"{name!r} may be {', '.join(sorted(names))}")
    if not found and places:
        raise NotPulled(
            f"{name} was not downloaded by localspec: {min(places)}",
            "Remove it with the program that it came with.",
        )
    if not found:
        known = ", ".join(sorted({each.name for each in pulled})) or "nothing so far"
        raise ModelNotFound(f"there is no model named {name!r}", f"What localspec downloaded: {known}.")
    return found


def _places(name: str, model_dirs: Sequence[str]) -> dict[str, str]:
    """Where everything lies that the name may mean, whole or broken, and what to type for that; nowhere for
    what is no model's."""
    if found := meant(name, recent_disk(model_dirs).named):
        return {place_of(each.path): each.model.names[0] for each in found}
    try:
        return {place_of(find_model(name, model_dirs)): name}
    except ModelNotFound:
        return {}


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
    """What of it can be named as a model."""
    if pulled.format == "mlx":
        return (pulled.place.snapshot,)
    return tuple(pulled.place.entry(file) for file in pulled.files)


def remove(pulled: Sequence[Pulled]) -> int:
    """Delete the files of these, but for what another model needs; returns the bytes that are free again.

    Raises :class:`StorageError` where the cache is in a state that the library does not understand.
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
    """Delete what came of a file that is not whole; raises :class:`HubBusy` while it still comes."""
    if not os.path.lexists(place.partial(file)):
        return 0
    with holding(place, file):
        size = 0 if place.has(file) else place.so_far(file)
        place.partial(file).unlink(missing_ok=True)
    return size


def _delete(place: Place, entries: set[Path]) -> int:
    """Delete entries of a snapshot, and the blobs that none else has: the library knows which."""
    if not place.snapshot.is_dir():
        return 0
    cache = scan_cache_dir(place.root)
    revision = _revision(cache, place)
    ours = [file for file in revision.files if file.file_path in entries]
    strategy = cache.delete_files(*ours)
    if len(ours) == len(revision.files) and not _somebody_is_at_it(place):
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
        f"{place.folder} is in a state that nothing should be removed from by a program",
        BY_HAND,
    )


def _somebody_is_at_it(place: Place) -> bool:
    return any(place.blobs.glob("*.incomplete"))


def _tidy(place: Place) -> None:
    """Remove directories that a broken-off download left empty, from the innermost out."""
    for folder in (place.snapshot, place.folder / "snapshots", place.blobs, place.folder):
        try:
            os.rmdir(folder)
        except OSError:
            return
