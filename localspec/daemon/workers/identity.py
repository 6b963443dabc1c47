"""The models that a key means on this disk, and the memory available to a pair."""

from __future__ import annotations

from collections.abc import Callable, Collection

from localspec.models.description import FORMATS
from localspec.models.disk import recent_disk
from localspec.models.library import chosen, meant, places_of
from localspec.models.machine import has_device_code
from localspec.models.model import Model
from localspec.models.pair import Room, is_apple_silicon
from localspec.protocol.engine_config import EngineConfig


def room_within(engine: EngineConfig, free: Callable[[str], int]) -> Room:
    """The memory available to a pair: what is ``free`` on this machine for a target at a place. The free
    memory of a device is known to its driver, which the worker queries: for a model that may go to a device
    there is no limit here."""

    def left(target: Model) -> int | None:
        is_asked = target.format == "mlx" or engine.gpu_layers != 0
        on_device = is_asked and not is_apple_silicon() and has_device_code(target.format)
        return None if on_device else free(target.place)

    return Room(engine, left)


def places_among(name: str, model_dirs: tuple[str, ...], places: Collection[str]) -> set[str]:
    """The places of the models that ``name`` stands for, preferring models in one of ``places``. Raises
    :class:`ModelError`."""
    found = meant(name, recent_disk(model_dirs).found)
    there = [each for each in found if not each.places.isdisjoint(places)]
    if not there:
        return places_of(name, model_dirs)
    return {place for format in FORMATS for place in chosen(name, there, format).places}
