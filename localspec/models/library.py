"""The models on this disk: found in every store, described, and looked up by name or path.

The stores are the bundled pair, the configured directories and those of other programs. Each model is listed
once, read again where it has changed, and named. The descriptions are kept in the cache directory. Two
processes may write that file at once: each writes all of it, and the last one stays; the models of the other
one are then read again, once.

A name of a bundled model means that model, a path the file or directory there, ``auto`` the default model
(:func:`settled`). Every other name is looked up so:

1. A name in full, that of the list or of a store.
2. A ``family:size``, such as ``qwen2.5-coder:7b``.
3. The beginning of a name.

Upper and lower case are alike. A model that can be used comes before one that cannot: the name of such a one
leads to an error with the reason.

Models of one family, size and variant differ in quantisation, format and store alone. Of those a name means
the one in the wanted format, then the first of :data:`PREFERRED`, as ``models pull`` chooses, then the
largest, then that of the first store. Among different models nothing is chosen.

Records, which are small JSON files, hold what was learnt about models on this machine, and about drafts with
their targets, so that it is known before either is loaded. The sections of the configuration that apply to a
request are those of its model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import json
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from localspec import home
from localspec._version import __version__
from localspec.config import Config
from localspec.errors import InvalidOptions, LocalspecError, ModelAmbiguous, ModelInvalid, ModelNotFound
from localspec.models.catalogue import (
    AUTO,
    BUNDLED,
    BUNDLED_DRAFT,
    BUNDLED_NAMES,
    BUNDLED_TARGET,
    CATALOGUE,
    DEFAULT,
    bundled_model,
)
from localspec.models.directory import is_directory_model
from localspec.models.fit import build_for, machine_name
from localspec.models.gguf import first_part, read_bounded
from localspec.models.model import (
    FORMATS,
    Format,
    Header,
    Model,
    describe,
    format_of,
    model_at,
    signature_of,
    text_of,
)
from localspec.models.names import parse, pulled_name, typed_names
from localspec.models.stores import Found, Store, stores_of
from localspec.protocol.frames import Signature
from localspec.protocol.messages import ModelDescription, Placement, StoreDescription
from localspec.protocol.options import Options, is_written_as_path
from localspec.protocol.requests import EngineConfig

MAX_INDEX = 64 * 1024 * 1024
LAYOUT = f"{__version__}/6"
"""a file of another layout is ignored: raise the number when descriptions change in form or meaning"""
MAX_BESIDE = 100
"""models of one directory that are considered as drafts"""
OLLAMAS_HUB = "hf.co/"
"""beginning of Ollama's names of the hub's models"""
FRESH_S = 2.0
"""seconds for which names are looked up in the last reading of the disk: a request looks up several, and a
client may repeat one that no model has"""

Sighting = list[tuple[str, Found]]
"""one model as it was found, with the names of the stores; the first is the one to show"""


class Disk(NamedTuple):
    """Every model, by stores; and the stores that exist."""

    found: list[Model]
    stores: list[StoreDescription]

    @property
    def models(self) -> list[ModelDescription]:
        return [each.description for each in self.found]


def marked(
    models: Iterable[Model], loaded: Mapping[tuple[str, str], Placement | None]
) -> tuple[ModelDescription, ...]:
    """The descriptions of models, with those marked that are ``loaded``: those at a place, on a backend."""

    def mark(model: Model) -> ModelDescription:
        keys = [key for place in model.places if (key := (place, model.description.backend)) in loaded]
        return replace(model.description, loaded=bool(keys), placement=loaded[keys[0]] if keys else None)

    return tuple(map(mark, models))


class _Recent:
    """The last reading of these stores, and the time until which it is used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stores: list[Store] = []
        self.until = -1.0
        self.disk = Disk([], [])


_recent = _Recent()


def read_disk(model_dirs: tuple[str, ...] = ()) -> Disk:
    """Read every store. A store or model that cannot be read is described with the reason, never raised."""
    return _read(stores_of(model_dirs))


def recent_disk(model_dirs: tuple[str, ...] = ()) -> Disk:
    """As :func:`read_disk`, but up to :data:`FRESH_S` old; a caller waits for a reading under way."""
    stores = list(stores_of(model_dirs))
    with _recent.lock:
        if stores != _recent.stores or time.monotonic() >= _recent.until:
            _recent.disk, _recent.stores = _read(stores), stores
            _recent.until = time.monotonic() + FRESH_S
        return _recent.disk


def forget_recent() -> None:
    """Make the next lookup read the disk anew, as a file was seen to have changed."""
    with _recent.lock:
        _recent.until = -1.0


def known_beside(target: Model, model_dirs: tuple[str, ...] = ()) -> list[Model]:
    """The models of the stores, after those in the directory of a target that is in none of them."""
    known = recent_disk(model_dirs).found
    if target.known is not None or any(target.place in each.places for each in known):
        return known
    paths = sorted(target.path.parent.glob("*.gguf" if target.format == "gguf" else "*/"))[:MAX_BESIDE]
    models = (path for path in paths if path.is_file() or is_directory_model(path))
    with _Index() as index:
        beside = [index.model(model_at(each).own_name, each) for each in models if first_part(each) == each]
    return [*beside, *known]


def _read(stores: Iterable[Store]) -> Disk:
    report: list[StoreDescription] = []
    sightings = _once(_scanned(stores, report))
    with _Index() as index:
        models = [_described(sighting, index) for sighting in sightings]
    return Disk(_named(models, sightings), report)


def _scanned(stores: Iterable[Store], report: list[StoreDescription]) -> Iterator[tuple[str, Found]]:
    """The bundled models, and what is in the stores; which are there is added to ``report``."""
    for name in (BUNDLED_TARGET, BUNDLED_DRAFT):
        yield BUNDLED, Found(bundled_model(name), name)
    for store in stores:
        found, problem, place = list[Found](), None, text_of(store.root)
        try:
            if not stat.S_ISDIR(os.stat(store.root).st_mode):
                continue
            found.extend(store.scan(store.root))
        except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: not a valid path
            continue
        except OSError as error:
            problem = f"{place} cannot be read: {error.strerror}"
        remedy = store.remedy if problem else None
        report.append(StoreDescription(name=store.name, path=place, problem=problem, remedy=remedy))
        yield from ((store.name, each) for each in found)


def _once(everything: Iterable[tuple[str, Found]]) -> list[Sighting]:
    """Each model once, however often it was found: by its place on the disk, or its digest."""
    models: list[Sighting] = []
    known: dict[object, Sighting] = {}
    for store, found in everything:
        keys = list(_keys(found))
        model = next((known[key] for key in keys if key in known), None)
        if model is None:
            models.append(model := [])
        model.append((store, found))
        known.update(dict.fromkeys(keys, model))
    return models


def _keys(found: Found) -> Iterator[object]:
    try:
        place = os.stat(found.path)
    except (OSError, ValueError):
        yield found.path
        return
    yield place.st_dev, place.st_ino
    if found.digest is not None:  # with the size, as a truncated copy has another one
        yield found.digest, place.st_size


# Descriptions.


class _Entry(msgspec.Struct, array_like=True):
    signature: Signature
    model: ModelDescription


class _Content(msgspec.Struct):
    layout: str
    models: dict[str, _Entry]


class _Index:
    """Descriptions by path, from the last time they were read. At its end it is written if some are new, also
    where Ctrl-C ended the reading; where that fails, those are read again next time."""

    def __init__(self) -> None:
        self._content = _Content(LAYOUT, {})
        self._path: Path | None = None
        self._changed = False
        with contextlib.suppress(LocalspecError, msgspec.DecodeError, ValueError, RecursionError):
            self._path = home.cache_dir() / "models.json"
            content = msgspec.json.decode(read_bounded(self._path, MAX_INDEX), type=_Content)
            if content.layout == LAYOUT:
                self._content = content

    def __enter__(self) -> _Index:
        return self

    def __exit__(self, *_: object) -> None:
        if self._changed and self._path is not None:
            models = {path: entry for path, entry in self._content.models.items() if os.path.lexists(path)}
            content = msgspec.json.encode(_Content(LAYOUT, models)).decode()
            with contextlib.suppress(OSError):
                home.write_private(self._path, content)

    def model(self, name: str, path: Path) -> Model:
        """The model at a path, described under this name; read where its files have changed since."""
        key, signature = text_of(path), signature_of(path)
        entry = self._content.models.get(key)
        if entry is None or entry.signature != signature or entry.model.id != text_of(name):
            found = Model(path, format_of(path), stamp=signature)
            described = describe(name, path, found.format, lambda: found.header)
            entry = self._content.models[key] = _Entry(signature, described)
            self._changed = True
        return Model(path, entry.model.format, known=entry.model, stamp=signature)


def _described(sighting: Sighting, index: _Index) -> Model:
    (store, found), *others = sighting
    if found.problem is None:
        model = index.model(found.id, found.path)
    else:
        model = model_at(found.path)
        known = describe(found.id, found.path, model.format, lambda: _unread(found))
        model = dataclasses.replace(model, known=known)
    also = dict.fromkeys(text_of(each.path) for _, each in others if each.path != found.path)
    return dataclasses.replace(model, known=replace(model.description, store=store, also=tuple(also)))


def _unread(found: Found) -> Header:
    """Raise the problem that a store reported: the file is not read."""
    raise ModelInvalid(found.problem or "", found.remedy)


# Names.


def _named(models: list[Model], sightings: list[Sighting]) -> list[Model]:
    """Give each model its names: the one to type first, then those of its stores."""
    ids = [_ids(model.description, sighting) for model, sighting in zip(models, sightings, strict=True)]
    parts = [
        # A broken or a bundled model has only the name of its store.
        None if model.problem or store == BUNDLED else parse(model.description, found.hint)
        for model, ((store, found), *_) in zip(models, sightings, strict=True)
    ]
    # A broken model takes no name: it may be another's.
    taken = [() if model.problem else own for model, own in zip(models, ids, strict=True)]
    named = []
    for model, name, own, taken_apart in zip(models, typed_names(parts, taken), ids, parts, strict=True):
        names = tuple(dict.fromkeys([name, *own] if name else own))
        known = replace(model.description, names=names)
        named.append(dataclasses.replace(model, known=known, parts=taken_apart))
    return named


def _ids(model: ModelDescription, sighting: Sighting) -> list[str]:
    """The names of a model in its stores; and its path, where that differs from the shown one."""
    ids = [text_of(each.id) for _, each in sighting]
    ids += [id.removesuffix(":latest") for id in ids]
    ids += [id.removeprefix(OLLAMAS_HUB) for id in ids]
    for _, each in sighting:
        if "/" in each.hint:
            ids += [each.hint, pulled_name(each.hint, each.path)]
    ids += [model.path] if model.path != str(sighting[0][1].path) else []
    return ids + [BUNDLED] * (model.store == BUNDLED and model.id == BUNDLED_TARGET)


log = logging.getLogger(__name__)

FORMAT = 8
SPOILT = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""errors of reading a record with arbitrary content"""
ENOUGH = 64
"""drafted tokens after which the result of a pair counts"""
HOPELESS = 0.02
"""share of accepted tokens below which no draft length saves time"""


class Learnt(Protocol):
    """State that a :class:`Record` can write and read again."""

    def state(self) -> dict[str, Any]:
        """The state as JSON values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned. Raises ValueError, KeyError or TypeError for anything else."""


class Record:
    """One file: what was learnt of ``what`` on this kind of machine. ``what`` names the device and the build
    of the library where the result depends on them; a record of another one is not read.

    Where the file cannot be read or written, only what was learnt is lost.
    """

    def __init__(self, directory: Path, what: str, learnt: Learnt) -> None:
        self._learnt = learnt
        self._key = f"{what} on {machine_name()}"
        name = hashlib.sha256(self._key.encode()).hexdigest()[:16]
        self._path = directory / f"{name}.json"
        self._written = ""

    def read(self) -> None:
        """Restore the written state, if the file can be used."""
        try:
            content = self._path.read_text(encoding="utf-8")
            document = json.loads(content)
            if document["format"] == FORMAT and document["of"] == self._key:
                self._learnt.restore(document["learnt"])
        except FileNotFoundError:
            return
        except SPOILT as error:
            log.info("%s cannot be used and will be replaced: %s", self._path, error)

    def write(self) -> None:
        """Write the state if it has changed."""
        learnt = json.dumps({"format": FORMAT, "of": self._key, "learnt": self._learnt.state()})
        if learnt == self._written:
            return
        self._written = learnt
        with contextlib.suppress(OSError):
            home.write_private(self._path, learnt)


def learnt_dir() -> Path:
    """The directory of the records; raises :class:`LocalspecError` where it cannot be made."""
    return home.private_dir(home.cache_dir() / "learnt")


class Tried(NamedTuple):
    """Counts of ``drafted`` tokens and of those ``accepted``; ``gain`` is the expected speed with the best
    drafts as a multiple of plain decoding, 1 where none saves time; None: the cost of steps is not known."""

    drafted: int = 0
    accepted: int = 0
    gain: float | None = None

    @property
    def is_known(self) -> bool:
        """True if enough was drafted to judge; until then ``gain`` is that of most drafts."""
        return self.drafted >= ENOUGH

    @property
    def loses(self) -> bool:
        """True if this draft is known not to help."""
        hopeless = self.accepted < HOPELESS * self.drafted
        return self.is_known and (hopeless or self.gain == 1.0)

    @property
    def wins(self) -> bool:
        """True if this draft is known to help."""
        return self.is_known and self.gain is not None and not self.loses


class TriedRecord:
    """A :class:`Tried` as it is written; see :class:`Learnt`."""

    def __init__(self) -> None:
        self.tried = Tried()

    def state(self) -> dict[str, Any]:
        return self.tried._asdict()

    def restore(self, state: Mapping[str, Any]) -> None:
        drafted, accepted, gain = (state[field] for field in Tried._fields)
        if not (type(drafted) is type(accepted) is int and 0 <= accepted <= drafted):
            raise ValueError("more tokens accepted than drafted")
        if gain is not None and not 1.0 <= (gain := float(gain)) < 1e3:
            raise ValueError("the gain is not from 1 to 1000")
        self.tried = Tried(drafted, accepted, gain)


def name_of_pair(target: Model, draft: Model, nodes: Sequence[str] = ()) -> str:
    """The name of a pair's record: other files at the same paths, another build of the library that runs
    them, or other nodes that share the target, count as another pair."""
    pair = " and ".join(map(name_of_model, (target, draft)))
    return f"pair of {pair} by {build_for(target.format)}{over(nodes)}"


def name_of_model(model: Model) -> str:
    """The name of a model in records: another file at its place is another model."""
    return f"{model.place!r}, {model.weight_bytes} bytes"


def over(nodes: Sequence[str]) -> str:
    """The nodes that share a model, without their tokens, in the name of a record."""
    return "".join(f", and {node.partition('#')[0]}" for node in nodes)


def known_of(target: Model, draft: Model, nodes: Sequence[str] = ()) -> Tried:
    """The recorded results of engines with these two models, the target shared by ``nodes``."""
    record = TriedRecord()
    with contextlib.suppress(LocalspecError, OSError):  # without a cache directory there are no results
        Record(learnt_dir(), name_of_pair(target, draft, nodes), record).read()
    return record.tried


SUFFIX = ".gguf"
HUBS_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
"""names that ``models pull`` takes"""
SHOWN = 8
"""matches of an ambiguous name that a message lists"""


# Finding.


def find(name: str, model_dirs: tuple[str, ...] = (), *, format: Format | None = None) -> Model:
    """Return the model that ``name`` means. Of a model in several formats ``format`` chooses, or else it is
    the GGUF file. A plain name is no path: the daemon's directory is ``/``, where `tmp` and `lib` are.

    Raises :class:`ModelNotFound`, naming the nearest, :class:`ModelAmbiguous`, naming the matches, and
    :class:`ModelInvalid` for one that cannot be used.
    """
    name = settled(name, model_dirs)
    if bundled := BUNDLED_NAMES.get(name.lower()):  # no other model can have these
        return Model(bundled_model(bundled), "gguf")
    path = _path(name)
    is_file = is_written_as_path(name) and os.path.exists(path) and not os.path.isdir(path)
    # Bytes that are not UTF-8 are shown as U+FFFD: the list alone has the original ones.
    if is_file or (_is_path(name) and "\ufffd" not in name):
        return _at(path, model_dirs)
    known = recent_disk(model_dirs).found
    if found := meant(name, known):
        return chosen(name, found, format)
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
    one that is meant, in all quantisations and formats of that name.

    Raises as :func:`find`.
    """
    wanted, known = settled(name, model_dirs).lower(), recent_disk(model_dirs).found
    family = [each for each in known if _is_of(each, wanted)]
    return family or [*in_formats(name, model_dirs), *meant(wanted, known)]


def in_formats(name: str, model_dirs: tuple[str, ...] = ()) -> list[Model]:
    """Return the model that a name means, twice where there are both formats. Raises as :func:`find`."""
    return list(dict.fromkeys(find(name, model_dirs, format=format) for format in FORMATS))


def places_of(name: str, model_dirs: tuple[str, ...] = ()) -> set[str]:
    """Return the places that a name stands for, two where there are both formats. Raises as :func:`find`."""
    return {each.place for each in in_formats(name, model_dirs)}


def settled(name: str, model_dirs: tuple[str, ...] = ()) -> str:
    """Return the name that ``auto`` stands for: the catalogue's default model where it is on this disk and
    usable, otherwise the bundled one. Another name is returned as it is."""
    if name != AUTO:
        return name
    return DEFAULT if is_here(DEFAULT, model_dirs) else BUNDLED


def is_here(name: str, model_dirs: tuple[str, ...] = ()) -> bool:
    """Return True if a model of the catalogue is on this disk and usable, wherever it came from."""
    found = meant(name, recent_disk(model_dirs).found)
    return bool(found) and found[0].problem is None and os.path.exists(found[0].path)


# Paths.


def absolute(name: str) -> str:
    """Return a typed path as the daemon can find it from its own directory; names stay as they are.

    Raises :class:`InvalidOptions` for an empty one, which would mean this directory.
    """
    if not name:
        raise InvalidOptions(
            "the name of a model is empty", "Give one of `localspec models list`, or a path."
        )
    if name in ("bundled", "none", "auto"):
        return name
    try:
        is_file = name.endswith(SUFFIX) or os.path.isfile(_path(name))
        return os.path.abspath(_path(name)) if is_file or _is_path(name) else name
    except OSError as error:
        raise InvalidOptions(
            f"{name} cannot be looked up on this disk: {error.strerror}",
            "Give one of `localspec models list`, or its path.",
        ) from None


def _is_path(name: str) -> bool:
    """Return True if a name is a path; other names may contain a ``/``, as those of repositories do."""
    path = _path(name)
    from_somewhere = name.startswith(("/", "./", "../")) or path != Path(name)
    return from_somewhere or ("/" in name and os.path.exists(path))


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


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))


# Names.


def meant(name: str, known: Sequence[Model]) -> list[Model]:
    """Return the models that ``name`` may mean, the preferred first; empty where no model has such a name."""
    wanted = name.lower()
    for matches in (_is_called, _is_of, _begins):
        if found := [each for each in known if matches(each, wanted)]:
            found = [each for each in found if each.problem is None] or found
            return sorted(
                found, key=lambda each: (each.parts.preference if each.parts else 0, -each.description.size)
            )
    return []


def chosen(name: str, found: Sequence[Model], format: Format | None = None) -> Model:
    """Return the one of ``found`` that ``name`` stands for.

    Raises :class:`ModelAmbiguous`, naming them, for different models; :class:`ModelInvalid` for a broken one.
    """
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
