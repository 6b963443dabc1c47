"""The sections of the configuration that apply to a request: those of its directory and of its model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from localspec.config import Config, section_name
from localspec.errors import LocalspecError
from localspec.models.bundled import BUNDLED
from localspec.models.library import find_all, places_of
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options, names_draft

T = TypeVar("T")
K = TypeVar("K")

GENERAL = "[options]"
"""the heading of the options that apply where no section sets them"""
MOST_NAMES = 256
"""names kept with their models, to save lookups on the disk; bounded, as clients can spell paths in any
number of ways"""


class Layer(NamedTuple):
    """The options of one part of the configuration, and its heading."""

    source: str
    options: Options


class Sections:
    """A configuration, as it applies to one request or one model.

    A workspace's section applies in all of its directory; of several the innermost goes first. A model's
    section applies however the model is named: names are compared by the places on the disk that they lead
    to. That of a ``family:size`` applies to all of these. Of two sections of one model the later goes first.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._known: dict[str, tuple[str, ...]] = {}
        """the headings of the sections by models' names"""
        self._alike: dict[tuple[str, str], bool] = {}
        """True if two names mean one model, by the names"""

    @property
    def need_the_disk(self) -> bool:
        """True if the options of a model can depend on more than its name."""
        return bool(self.config.models or self.config.workspaces or names_draft(self.config.options))

    def merged(self, given: Options, path: str | None = None) -> Options:
        """``given`` over all that the configuration sets; ``path``: of the file that the request is about.

        Reads the disk where :attr:`need_the_disk`.
        """
        for layer in self.layers(given, path):
            given = self._over(given, layer.options)
        return given

    def layers(self, given: Options, path: str | None = None) -> Iterator[Layer]:
        """The layers that apply to a request with the options ``given``, the strongest first."""
        place = self._place(given, path) if self.config.workspaces else None
        for directory in self.directories(place):
            layer = Layer(section_name("workspaces", directory), self.config.workspaces[directory])
            given = given.over(layer.options)
            yield layer
        for name in self.of_model(given.model or self.config.options.model or BUNDLED):
            yield Layer(section_name("models", name), self.config.models[name].options)
        yield Layer(GENERAL, self.config.options)

    def engine(self, model: str) -> EngineConfig:
        """The settings that load a model, alike for all its names; reads the disk if there are sections."""
        engine = self.config.engine
        for section in reversed(self.of_model(model)):
            engine = self.config.models[section].over(engine)
        return engine

    def directories(self, place: str | None) -> list[str]:
        """Of the directories that have sections, those that contain ``place``, the innermost first."""
        holding = [name for name in self.config.workspaces if _holds(name, place)]
        return sorted(holding, key=lambda name: -len(Path(real(name)).parts))

    def unresolved(self) -> list[tuple[str, LocalspecError]]:
        """The sections of models that apply to none, by their names, with the error: misspelt, not there yet,
        broken, or ambiguous."""
        return [(name, error) for name in self.config.models if (error := self._covered(name)[1]) is not None]

    def of_model(self, model: str) -> tuple[str, ...]:
        """Of the models that have sections, the names that mean ``model``; the last in the file first."""
        if not self.config.models:
            return ()
        known = self._known.get(model)
        if known is None:
            places = self._places(model)
            sections = ((name, self._covered(name)[0]) for name in self.config.models)
            same = [name for name, covered in sections if name == model or not places.isdisjoint(covered)]
            known = tuple(reversed(same))
            if places:  # else it may be added later
                _keep(self._known, model, known)
        return known

    def _place(self, given: Options, path: str | None) -> str | None:
        """The path that a request belongs to: its file if its workspace contains that, else the workspace."""
        workspace = given.workspace or self.config.options.workspace
        return path if not workspace or _holds(workspace, path) else workspace

    def _over(self, given: Options, base: Options) -> Options:
        """``given`` over ``base``, whose draft stays with its model however that is named."""
        model, other = given.model, base.model
        if model and other and model != other and names_draft(base) and self._are_one(model, other):
            base = replace(base, model=model)
        return given.over(base)

    def _are_one(self, model: str, other: str) -> bool:
        known = self._alike.get((model, other))
        if known is None:
            places, others = self._places(model), self._places(other)
            known = not places.isdisjoint(others)
            if places and others:  # else one may be added later
                _keep(self._alike, (model, other), known)
        return known

    def _places(self, name: str) -> set[str]:
        try:
            return places_of(name, self.config.model_dirs)
        except LocalspecError:
            return set()

    def _covered(self, name: str) -> tuple[set[str], LocalspecError | None]:
        """The places that a section applies to; or none, and the error."""
        try:
            return {each.place for each in find_all(name, self.config.model_dirs)}, None
        except LocalspecError as error:
            return set(), error


def _keep(known: dict[K, T], key: K, value: T) -> None:
    if len(known) >= MOST_NAMES:
        known.clear()
    known[key] = value


def _holds(directory: str, place: str | None) -> bool:
    """True if ``place`` is in this directory, or is it; False for an invalid path."""
    if place is None or not os.path.isabs(place) or "\0" in place + directory:
        return False
    return Path(real(place)).is_relative_to(real(directory))


def real(directory: str) -> str:
    """The real path of a directory's name, with ``~`` expanded."""
    return os.path.realpath(os.path.expanduser(directory))
