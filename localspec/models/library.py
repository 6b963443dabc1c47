"""The lookup of models by name or path, and the configuration's sections that apply to a model.

A name of a bundled model means that model, a path the file or directory there, ``auto`` the default model
(:func:`settle_name`). Every other name is looked up so:

1. A name in full, that of the list or of a store.
2. A ``family:size``, such as ``qwen2.5-coder:7b``.
3. The beginning of a name.

Upper and lower case are alike. A model that can be used comes before one that cannot: the name of such a one
leads to an error with the reason.

Models of one family, size and variant differ in quantisation, format and store alone. Of those a name means
the one in the wanted format, then the first of :data:`PREFERRED`, as ``models pull`` chooses, then the
largest, then that of the first store. Among different models nothing is chosen.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from localspec.config import Config
from localspec.errors import LocalspecError, ModelAmbiguous, ModelInvalid, ModelNotFound
from localspec.models.catalogue import AUTO, BUNDLED, BUNDLED_NAMES, CATALOGUE, DEFAULT, bundled_model
from localspec.models.directory import is_directory_model
from localspec.models.index import recent_disk
from localspec.models.model import FORMATS, Format, Model, model_at
from localspec.models.paths import SUFFIX, is_path, path_of
from localspec.protocol.options import Options, is_written_as_path
from localspec.protocol.requests import EngineConfig

LookUp = Callable[[str, tuple[str, ...]], list[Model]]
HUBS_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
SHOWN = 8


# Finding.


def find(name: str, model_dirs: tuple[str, ...] = (), *, format: Format | None = None) -> Model:
    """Return the model that ``name`` means. Of a model in several formats ``format`` chooses, or else it is
    the GGUF file. A plain name is no path: the daemon's directory is ``/``, where `tmp` and `lib` are.
    Raises :class:`ModelNotFound`, naming the nearest, :class:`ModelAmbiguous`, naming the matches, and
    :class:`ModelInvalid` for one that cannot be used."""
    name = settle_name(name, model_dirs)
    if bundled := BUNDLED_NAMES.get(name.lower()):  # no other model can have these
        return Model(bundled_model(bundled), "gguf")
    path = path_of(name)
    is_file = is_written_as_path(name) and os.path.exists(path) and not os.path.isdir(path)
    # Bytes that are not UTF-8 are shown as U+FFFD: the list alone has the original ones.
    if is_file or (is_path(name) and "\ufffd" not in name):
        return _at(path, model_dirs)
    known = recent_disk(model_dirs).found
    if found := match_models(name, known):
        return choose_model(name, found, format)
    if is_written_as_path(name) and (os.path.isdir(path) or name.endswith(SUFFIX)):
        return _at(path, model_dirs)
    names = {each.lower(): each for each in (BUNDLED, *(n for one in known for n in one.names))}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {names[near[0]]!r}?" if near else ""
    pull = f"`localspec models list` shows those here; `localspec models pull {name}` downloads it."
    remedy = pull if HUBS_NAME.fullmatch(name) or name.lower() in CATALOGUE else None
    raise ModelNotFound(f"there is no model named {name!r}{hint}", remedy)


def find_all(name: str, model_dirs: tuple[str, ...] = ()) -> list[Model]:
    """Return all models that settings for ``name`` apply to: every model of a ``family:size``, or else the
    one that is meant, in all quantisations and formats of that name. Raises as :func:`find`."""
    wanted, known = settle_name(name, model_dirs).lower(), recent_disk(model_dirs).found
    family = [each for each in known if _is_of(each, wanted)]
    return family or [*in_formats(name, model_dirs), *match_models(wanted, known)]


def in_formats(name: str, model_dirs: tuple[str, ...] = ()) -> list[Model]:
    """Return the model that a name means, twice where there are both formats. Raises as :func:`find`."""
    return list(dict.fromkeys(find(name, model_dirs, format=format) for format in FORMATS))


def places_of(name: str, model_dirs: tuple[str, ...] = ()) -> set[str]:
    """Return the places that a name stands for, two where there are both formats. Raises as :func:`find`."""
    return {each.place for each in in_formats(name, model_dirs)}


def settle_name(name: str, model_dirs: tuple[str, ...] = ()) -> str:
    """Return the name that ``auto`` stands for: the catalogue's default model where it is on this disk and
    usable, otherwise the bundled one. Another name is returned as it is."""
    if name != AUTO:
        return name
    return DEFAULT if is_here(DEFAULT, model_dirs) else BUNDLED


def is_here(name: str, model_dirs: tuple[str, ...] = ()) -> bool:
    """Return True if a model of the catalogue is on this disk and usable, wherever it came from."""
    found = match_models(name, recent_disk(model_dirs).found)
    return bool(found) and found[0].problem is None and os.path.exists(found[0].path)


# Paths.


def _at(path: Path, model_dirs: tuple[str, ...]) -> Model:
    """The model at a path, with the names that the list has for it. Raises :class:`ModelNotFound` and
    :class:`ModelInvalid`."""
    if not os.path.exists(path):
        raise ModelNotFound(f"there is no file {path}")
    if os.path.isdir(path) and not is_directory_model(path):
        raise ModelInvalid(
            f"{path} is a directory without a config.json",
            "Give the path of a GGUF file, or of a directory with config.json and *.safetensors.",
        )
    model = model_at(Path(os.path.abspath(path)))
    listed = (each for each in recent_disk(model_dirs).found if model.place in each.places)
    same = next(listed, None)
    return model if same is None else model.as_listed(same)


# Names.


def match_models(name: str, known: Sequence[Model]) -> list[Model]:
    """Return the models that ``name`` may mean, the preferred first; empty where no model has such a name."""
    wanted = name.lower()
    for matches in (_is_called, _is_of, _begins):
        if found := [each for each in known if matches(each, wanted)]:
            found = [each for each in found if each.problem is None] or found
            return sorted(
                found, key=lambda each: (each.parts.preference if each.parts else 0, -each.description.size)
            )
    return []


def choose_model(name: str, found: Sequence[Model], format: Format | None = None) -> Model:
    """Return the one of ``found`` that ``name`` stands for. Raises :class:`ModelAmbiguous`, naming them,
    for different models; :class:`ModelInvalid` for a broken one."""
    wanted = [each for each in found if each.format == (format or "gguf")] or found
    # Models with one name in full are one model in two formats, though their stated sizes may differ.
    rivals = wanted if all(_is_called(each, name.lower()) for each in found) else found
    if len(set(map(_kind, rivals))) > 1:
        names = sorted({each.name for each in rivals})
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ModelAmbiguous(f"{name!r} is ambiguous: it may be {', '.join(names[:SHOWN])}{more}")
    first = wanted[0].description
    if first.problem is not None:
        raise ModelInvalid(f"{wanted[0].name} cannot be used: {first.problem}", first.remedy)
    return wanted[0]


def _kind(model: Model) -> tuple[str, ...]:
    """Return the part of a name that is alike for one model in all quantisations and formats."""
    return (model.description.id,) if model.parts is None else (model.parts.short, model.parts.variant)


def _is_called(model: Model, name: str) -> bool:
    """True if this is one of the model's names in full; ``name`` is in lower case."""
    return name in (each.lower() for each in model.names)


def _is_of(model: Model, name: str) -> bool:
    """True if the model is of this family and size."""
    return model.parts is not None and model.parts.short == name


def _begins(model: Model, name: str) -> bool:
    """True if one of the model's names begins with this one."""
    return any(each.lower().startswith(name) for each in model.names)


class Sections:
    """A configuration, as it applies to one request or one model. A model's section applies however the
    model is named: names are compared by the places on the disk that they lead to. That of a
    ``family:size`` applies to all of these. Of two sections of one model the later goes first."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def merge_options(self, given: Options) -> Options:
        """``given`` over all that the configuration sets, with a name for the model ``auto``; reads the disk
        for that, or if there are sections."""
        model = settle_name(self._choose_name(given), self.config.model_dirs)
        for name in self.of_model(model):
            given = given.over(self.config.models[name].options)
        return replace(given.over(self.config.options), model=model)

    def lacks_default(self, given: Options) -> bool:
        """True if the bundled model answers ``given`` because the default one is not on this disk."""
        return self._choose_name(given) == AUTO and not is_here(DEFAULT, self.config.model_dirs)

    def _choose_name(self, given: Options) -> str:
        return given.model or self.config.options.model or AUTO

    def engine(self, model: str) -> EngineConfig:
        """The settings that load a model, alike for all its names; reads the disk if there are sections."""
        engine = self.config.engine
        for section in reversed(self.of_model(model)):
            engine = self.config.models[section].over(engine)
        return engine

    def find_unresolved(self) -> list[tuple[str, LocalspecError]]:
        """The sections of models that apply to none, by their names, with the error: misspelt, not there yet,
        broken, or ambiguous."""
        return [
            (name, error) for name in self.config.models if (error := self._find_covered(name)[1]) is not None
        ]

    def of_model(self, model: str) -> tuple[str, ...]:
        """Of the models that have sections, the names that mean ``model``; the last in the file first."""
        if not self.config.models:
            return ()
        places, _ = self._find_covered(model, in_formats)
        sections = ((name, self._find_covered(name)[0]) for name in reversed(self.config.models))
        return tuple(name for name, covered in sections if name == model or not places.isdisjoint(covered))

    def _find_covered(self, name: str, look_up: LookUp = find_all) -> tuple[set[str], LocalspecError | None]:
        """The places of all that is found by a name, such as a section's; or none, and the error."""
        try:
            return {each.place for each in look_up(name, self.config.model_dirs)}, None
        except LocalspecError as error:
            return set(), error
