"""Which models a key means on this disk, and what memory they need."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from localspec.config import EngineConfig
from localspec.daemon.workers.worker import Key
from localspec.errors import LocalspecError
from localspec.models.candidates import Room, auto_draft
from localspec.models.description import BACKENDS, FORMATS
from localspec.models.disk import recent_disk
from localspec.models.fit import Needs, size_of
from localspec.models.library import chosen, find, in_formats, meant, places_of
from localspec.models.model import Model
from localspec.models.sections import Sections

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
            draft = find(draft, model_dirs, format=paths[0].format).place
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
        place = "none" if draft is None else draft.place
        return Weighed(_named(key, paths, place), engine, needs, least if key.draft == "auto" else needs)
    except LocalspecError:
        return Weighed(key, engine)


def places_among(name: str, model_dirs: tuple[str, ...], places: Collection[str]) -> set[str]:
    """The places that ``name`` stands for: of the models that it may mean those that lie in one of
    ``places`` go first. Raises :class:`ModelError`."""
    found = meant(name, recent_disk(model_dirs).found)
    there = [each for each in found if not each.places.isdisjoint(places)]
    if not there:
        return places_of(name, model_dirs)
    return {place for format in FORMATS for place in chosen(name, there, format).places}


def _named(key: Key, paths: list[Model], draft: str) -> Key:
    """Which of two formats it will be is measured, by the worker."""
    backend = key.backend if len(paths) > 1 else BACKENDS[paths[0].format]
    return Key(paths[0].place, draft, backend)


def _targets(key: Key, model_dirs: tuple[str, ...]) -> list[Model]:
    """The GGUF file, the MLX directory, or both; raises :class:`ModelError`."""
    formats = [format for format, name in BACKENDS.items() if key.backend in ("auto", name)]
    found = in_formats(key.model, model_dirs, formats)
    if not found or (key.backend != "auto" and found[0].format not in formats):
        raise LocalspecError(f"{key.backend} does not run {key.model}")
    return found


def _draft(target: Model, draft: str, model_dirs: tuple[str, ...], engine: EngineConfig) -> Model | None:
    """Raises :class:`ModelError`. Whether there is memory for what ``auto`` chooses, the worker will see."""
    if draft == "none":
        return None
    if draft == "auto":
        return auto_draft(target, model_dirs, Room(engine))[0]
    return find(draft, model_dirs, format=target.format)
