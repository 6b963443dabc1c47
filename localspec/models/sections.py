"""The sections of the configuration that apply to a request: those of its model."""

from __future__ import annotations

from msgspec.structs import replace

from localspec.config import Config
from localspec.errors import LocalspecError
from localspec.models.catalogue import AUTO, DEFAULT
from localspec.models.library import find_all, is_here, places_of, settled
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options


class Sections:
    """A configuration, as it applies to one request or one model.

    A model's section applies however the model is named: names are compared by the places on the disk that
    they lead to. That of a ``family:size`` applies to all of these. Of two sections of one model the later
    goes first.
    """

    def __init__(self, config: Config) -> None:
        self.config = config

    def merged(self, given: Options) -> Options:
        """``given`` over all that the configuration sets, with a name for the model ``auto``; reads the disk
        for that, or if there are sections."""
        model = settled(self._wanted(given), self.config.model_dirs)
        for name in self.of_model(model):
            given = given.over(self.config.models[name].options)
        return replace(given.over(self.config.options), model=model)

    def lacks_default(self, given: Options) -> bool:
        """True if the bundled model answers ``given`` because the default one is not on this disk."""
        return self._wanted(given) == AUTO and not is_here(DEFAULT, self.config.model_dirs)

    def _wanted(self, given: Options) -> str:
        return given.model or self.config.options.model or AUTO

    def engine(self, model: str) -> EngineConfig:
        """The settings that load a model, alike for all its names; reads the disk if there are sections."""
        engine = self.config.engine
        for section in reversed(self.of_model(model)):
            engine = self.config.models[section].over(engine)
        return engine

    def unresolved(self) -> list[tuple[str, LocalspecError]]:
        """The sections of models that apply to none, by their names, with the error: misspelt, not there yet,
        broken, or ambiguous."""
        return [(name, error) for name in self.config.models if (error := self._covered(name)[1]) is not None]

    def of_model(self, model: str) -> tuple[str, ...]:
        """Of the models that have sections, the names that mean ``model``; the last in the file first."""
        if not self.config.models:
            return ()
        try:
            places = places_of(model, self.config.model_dirs)
        except LocalspecError:
            places = set()
        sections = ((name, self._covered(name)[0]) for name in reversed(self.config.models))
        return tuple(name for name, covered in sections if name == model or not places.isdisjoint(covered))

    def _covered(self, name: str) -> tuple[set[str], LocalspecError | None]:
        """The places that a section applies to; or none, and the error."""
        try:
            return {each.place for each in find_all(name, self.config.model_dirs)}, None
        except LocalspecError as error:
            return set(), error
