"""The models that a key means on this disk, and the memory available to a pair."""

from __future__ import annotations

from collections.abc import Collection

from localspec.daemon.workers.worker import Key
from localspec.errors import LocalspecError
from localspec.models.candidates import Room
from localspec.models.description import BACKENDS, FORMATS
from localspec.models.disk import recent_disk
from localspec.models.library import chosen, find, in_formats, meant, places_of
from localspec.models.machine import has_device_code
from localspec.models.model import Model
from localspec.models.pair import Pair, is_apple_silicon
from localspec.models.sections import Sections
from localspec.protocol.engine_config import EngineConfig

NOT_PATHS = ("auto", "none")


def identify(key: Key, sections: Sections) -> Key:
    """The key with paths for names, alike for all names of the same models; ``auto`` stays ``auto``.

    Reads the disk. A name that cannot be resolved stays as it is: the choice of the pair raises its error.
    """
    model_dirs = sections.config.model_dirs
    try:
        paths, draft = _targets(key, model_dirs), key.draft
        if len(paths) == 1 and draft not in NOT_PATHS:
            draft = find(draft, model_dirs, format=paths[0].format).place
        return _named(key, paths, draft)
    except LocalspecError:
        return key


def key_of_pair(pair: Pair) -> Key:
    """The key of a chosen pair: paths for names, the chosen draft for ``auto``, or ``none``."""
    return Key(pair.target.place, "none" if pair.draft is None else pair.draft.place, pair.backend)


def room_within(engine: EngineConfig, free: int) -> Room:
    """The memory available to a pair: ``free`` bytes of this machine's. The free memory of a device is known
    to its driver, which the worker queries: for a model that may go to a device there is no limit here."""

    def left(target: Model) -> int | None:
        is_asked = target.format == "mlx" or engine.gpu_layers != 0
        on_device = is_asked and not is_apple_silicon() and has_device_code(target.format)
        return None if on_device else free

    return Room(engine, left)


def places_among(name: str, model_dirs: tuple[str, ...], places: Collection[str]) -> set[str]:
    """The places of the models that ``name`` stands for, preferring models in one of ``places``. Raises
    :class:`ModelError`."""
    found = meant(name, recent_disk(model_dirs).found)
    there = [each for each in found if not each.places.isdisjoint(places)]
    if not there:
        return places_of(name, model_dirs)
    return {place for format in FORMATS for place in chosen(name, there, format).places}


def _named(key: Key, paths: list[Model], draft: str) -> Key:
    """The key with paths for names; of two formats the one to load is chosen later."""
    backend = key.backend if len(paths) > 1 else BACKENDS[paths[0].format]
    return Key(paths[0].place, draft, backend)


def _targets(key: Key, model_dirs: tuple[str, ...]) -> list[Model]:
    """The GGUF file, the MLX directory, or both; raises :class:`ModelError`."""
    formats = [format for format, name in BACKENDS.items() if key.backend in ("auto", name)]
    found = in_formats(key.model, model_dirs, formats)
    if not found or (key.backend != "auto" and found[0].format not in formats):
        raise LocalspecError(f"the backend {key.backend} cannot run the model {key.model}")
    return found
