"""Which sections of the configuration hold for a request: those of its directory and of its model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from localspec.config import Config, EngineConfig, section_name
from localspec.errors import LocalspecError
from localspec.models.catalogue import BUNDLED, FORMATS, find_model, place_of
from localspec.protocol.options import Options

MOST_NAMES = 256
"""whose sections are known without looking at the disk; clients can spell paths in any number of ways"""


class Layer(NamedTuple):
    """What one part of the configuration says, and how it is headed."""

    source: str
    options: Options


class Sections:
    """A configuration, as it holds for one request or one model.

    A workspace's section holds in all of its directory; of several the innermost goes first. A model's
    section holds however the model is named: names are compared by the places on the disk that they lead to.
    Of two sections of one model the later goes first.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._known: dict[str, tuple[str, ...]] = {}
        """the headings of the sections by models' names"""

    @property
    def there_are(self) -> bool:
        """Whether there are any: without them nothing depends on the disk."""
        return bool(self.config.models or self.config.workspaces)

    def merged(self, said: Options, path: str | None = None) -> Options:
        """``said`` over all that the configuration says; ``path``: of the file that is asked about.

        Looks at the disk where there are sections.
        """
        for layer in self.layers(said, path):
            said = said.over(layer.options)
        return said

    def layers(self, said: Options, path: str | None = None) -> Iterator[Layer]:
        """What holds for a request that says ``said``, the strongest first."""
        place = said.workspace or self.config.options.workspace or path
        for directory in self.directories(place):
            layer = Layer(section_name("workspaces", directory), self.config.workspaces[directory])
            said = said.over(layer.options)
            yield layer
        for name in self.of_model(said.model or self.config.options.model or BUNDLED):
            yield Layer(section_name("models", name), self.config.models[name].options)
        yield Layer("[options]", self.config.options)

    def engine(self, model: str) -> EngineConfig:
        """How a model is loaded, alike for all of its names; looks at the disk where there are sections."""
        engine = self.config.engine
        for section in reversed(self.of_model(model)):
            engine = self.config.models[section].over(engine)
        return engine

    def directories(self, place: str | None) -> list[str]:
        """Of the directories that have sections, those that hold ``place``, the innermost first."""
        if not self.config.workspaces or place is None or not os.path.isabs(place) or "\0" in place:
            return []
        inside = Path(real(place))
        places = {name: Path(real(name)) for name in self.config.workspaces}
        holding = [name for name, directory in places.items() if inside.is_relative_to(directory)]
        return sorted(holding, key=lambda name: -len(places[name].parts))

    def strangers(self) -> list[str]:
        """The names that have sections and are no model's here: misspelt, or of one that is yet to come."""
        return [name for name in self.config.models if not self._places(name)]

    def of_model(self, model: str) -> tuple[str, ...]:
        """Of the models that have sections, the names that mean ``model``; the last in the file first."""
        if not self.config.models:
            return ()
        known = self._known.get(model)
        if known is None:
            places = self._places(model)
            same = [n for n in self.config.models if n == model or not places.isdisjoint(self._places(n))]
            known = tuple(reversed(same))
            if places:  # otherwise it may yet come
                self._keep(model, known)
        return known

    def _keep(self, model: str, names: tuple[str, ...]) -> None:
        if len(self._known) >= MOST_NAMES:
            self._known.clear()
        self._known[model] = names

    def _places(self, name: str) -> set[str]:
        try:
            return places_of(name, self.config.model_dirs)
        except LocalspecError:
            return set()


def places_of(name: str, model_dirs: tuple[str, ...]) -> set[str]:
    """The places that a name stands for, two where there are both formats; raises :class:`ModelError`."""
    return {place_of(find_model(name, model_dirs, format=format)) for format in FORMATS}


def real(directory: str) -> str:
    """Where a directory's name leads."""
    return os.path.realpath(os.path.expanduser(directory))
