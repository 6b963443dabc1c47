"""Which models a key means on this disk, and what memory they need."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from localspec.config import EngineConfig
from localspec.daemon.workers.worker import Key
from localspec.errors import LocalspecError
from localspec.models.candidates import Room, auto_draft
from localspec.models.catalogue import BACKENDS, FORMATS, all_places, find_model, format_of, place_of
from localspec.models.disk import recent_disk
from localspec.models.fit import Needs, size_of
from localspec.models.meaning import chosen, meant
from localspec.models.sections import Sections, places_of

NOT_PATHS = ("auto", "none")


class Weighed(NamedTuple):
    """A key with paths for names, the draft that ``auto`` chooses among them, or ``none``; what these models
    need, and what they can do with, as a draft that nobody asked for may be left out; how they are loaded."""

    key: Key
    engine: EngineConfig
    needs: Needs = Needs()
    least: Needs = Needs()


def identify(key: Key, sections: Sections) -> Key:
    """The key with paths for names, alike for all names of the same models; ``auto`` stays ``auto``.

    Looks at the disk. A name that cannot be resolved stays as it is: the worker tells what is wrong.
    """
    model_dirs = sections.config.model_dirs
    try:
        paths, draft = _targets(key, model_dirs), key.draft
        if len(paths) == 1 and draft not in NOT_PATHS:
            draft = place_of(find_model(draft, model_dirs, format=format_of(paths[0])))
        return _named(key, paths, draft)
    except LocalspecError:
        return key


def weigh(key: Key, sections: Sections) -> Weighed:
    """What a worker for ``key`` is going to hold, and to need; looks at every model on this disk where the
    draft is left to choose. Nothing is known of what cannot be resolved."""
    engine, model_dirs = sections.engine(key.model), sections.config.model_dirs
    try:
        paths = _targets(key, model_dirs)
        target = paths[0]
        draft = _draft(target, key.draft, model_dirs, engine)
        size = size_of(target, engine)
        least = size.needs(None, engine)
        needs = least if draft is None else size.needs(size_of(draft, engine), engine)
        place = "none" if draft is None else place_of(draft)
        return Weighed(_named(key, paths, place), engine, needs, least if key.draft == "auto" else needs)
    except LocalspecError:
        return Weighed(key, engine)


def places_among(name: str, model_dirs: tuple[str, ...], places: Collection[str]) -> set[str]:
    """The places that ``name`` stands for: of the models that it may mean those that lie in one of
    ``places`` go first. Raises :class:`ModelError`."""
    found = meant(name, recent_disk(model_dirs).named)
    there = [each for each in found if not all_places(each.model).isdisjoint(places)]
    if not there:
        return places_of(name, model_dirs)
    return {place for format in FORMATS for place in all_places(chosen(name, there, format).model)}


def _named(key: Key, paths: list[Path], draft: str) -> Key:
    """Which of two formats it will be is measured, by the worker."""
    backend = key.backend if len(paths) > 1 else BACKENDS[format_of(paths[0])]
    return Key(place_of(paths[0]), draft, backend)


def _targets(key: Key, model_dirs: tuple[str, ...]) -> list[Path]:
    """The GGUF file, the MLX directory, or both; raises :class:`ModelError`."""
    formats = [format for format, name in BACKENDS.items() if key.backend in ("auto", name)]
    found = [find_model(key.model, model_dirs, format=format) for format in formats]
    if not found or (key.backend != "auto" and format_of(found[0]) not in formats):
        raise LocalspecError(f"{key.backend} does not run {key.model}")
    return list(dict.fromkeys(found))


def _draft(target: Path, draft: str, model_dirs: tuple[str, ...], engine: EngineConfig) -> Path | None:
    """Raises :class:`ModelError`. Whether there is memory for what ``auto`` chooses, the worker will see."""
    if draft == "none":
        return None
    if draft == "auto":
        return auto_draft(target, model_dirs, Room(engine))[0]
    return find_model(draft, model_dirs, format=format_of(target))
