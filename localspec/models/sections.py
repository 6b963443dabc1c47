"""Which sections of the configuration hold for a request: those of its directory and of its model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from localspec.config import Config, EngineConfig, section_name
from localspec.errors import LocalspecError
from localspec.models.bundled import BUNDLED
from localspec.models.library import find_all, places_of
from localspec.protocol.options import Options, names_draft

T = TypeVar("T")
K = TypeVar("K")

GENERAL = "[options]"
"""what holds where no section says otherwise"""
MOST_NAMES = 256
"""whose meaning is known without looking at the disk; clients can spell paths in any number of ways"""


class Layer(NamedTuple):
    """What one part of the configuration says, and how it is headed."""

    source: str
    options: Options


class Sections:
    """A configuration, as it holds for one request or one model.

    A workspace's section holds in all of its directory; of several the innermost goes first. A model's
    section holds however the model is named: names are compared by the places on the disk that they lead to.
    That of a ``family:size`` holds for all of these. Of two sections of one model the later goes first.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._known: dict[str, tuple[str, ...]] = {}
        """the headings of the sections by models' names"""
        self._alike: dict[tuple[str, str], bool] = {}
        """whether two names mean one model"""

    @property
    def need_the_disk(self) -> bool:
        """Whether what holds for a model can depend on more than its name."""
        return bool(self.config.models or self.config.workspaces or names_draft(self.config.options))

    def merged(self, said: Options, path: str | None = None) -> Options:
        """``said`` over all that the configuration says; ``path``: of the file that is asked about.

        Looks at the disk where :attr:`need_the_disk`.
        """
        for layer in self.layers(said, path):
            said = self._over(said, layer.options)
        return said

    def layers(self, said: Options, path: str | None = None) -> Iterator[Layer]:
        """What holds for a request that says ``said``, the strongest first."""
        place = self._place(said, path) if self.config.workspaces else None
        for directory in self.directories(place):
            layer = Layer(section_name("workspaces", directory), self.config.workspaces[directory])
            said = said.over(layer.options)
            yield layer
        for name in self.of_model(said.model or self.config.options.model or BUNDLED):
            yield Layer(section_name("models", name), self.config.models[name].options)
        yield Layer(GENERAL, self.config.options)

    def engine(self, model: str) -> EngineConfig:
        """How a model is loaded, alike for all of its names; looks at the disk where there are sections."""
        engine = self.config.engine
        for section in reversed(self.of_model(model)):
            engine = self.config.models[section].over(engine)
        return engine

    def directories(self, place: str | None) -> list[str]:
        """Of the directories that have sections, those that hold ``place``, the innermost first."""
        holding = [name for name in self.config.workspaces if _holds(name, place)]
        return sorted(holding, key=lambda name: -len(Path(real(name)).parts))

    def unresolved(self) -> list[tuple[str, LocalspecError]]:
        """The sections of models that hold for none, by their names, and why: what is misspelt, yet to come,
        broken, or may be several."""
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
            if places:  # otherwise it may yet come
                _keep(self._known, model, known)
        return known

    def _place(self, said: Options, path: str | None) -> str | None:
        """Where a request is from: the file that is asked about, if its workspace holds that."""
        workspace = said.workspace or self.config.options.workspace
        return path if not workspace or _holds(workspace, path) else workspace

    def _over(self, said: Options, base: Options) -> Options:
        """``said`` over ``base``, whose draft stays with its model however that is named."""
        model, other = said.model, base.model
        if model and other and model != other and names_draft(base) and self._are_one(model, other):
            base = replace(base, model=model)
        return said.over(base)

    def _are_one(self, model: str, other: str) -> bool:
        known = self._alike.get((model, other))
        if known is None:
            places, others = self._places(model), self._places(other)
            known = not places.isdisjoint(others)
            if places and others:  # otherwise it may yet come
                _keep(self._alike, (model, other), known)
        return known

    def _places(self, name: str) -> set[str]:
        try:
            return places_of(name, self.config.model_dirs)
        except LocalspecError:
            return set()

    def _covered(self, name: str) -> tuple[set[str], LocalspecError | None]:
        """The places that a section holds for; none, and why."""
        try:
            return {each.place for each in find_all(name, self.config.model_dirs)}, None
        except LocalspecError as error:
            return set(), error


def _keep(known: dict[K, T], key: K, value: T) -> None:
    if len(known) >= MOST_NAMES:
        known.clear()
    known[key] = value


def _holds(directory: str, place: str | None) -> bool:
    """Whether a file or directory is in this one, or is it; not for what no path can be."""
    if place is None or not os.path.isabs(place) or "\0" in place + directory:
        return False
    return Path(real(place)).is_relative_to(real(directory))


def real(directory: str) -> str:
    """Where a directory's name leads."""
    return os.path.realpath(os.path.expanduser(directory))
