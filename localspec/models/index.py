"""The models on this disk: found in every store, each listed once, described and named.

The stores are the bundled pair, the configured directories and those of other programs. A model is read again
where it has changed. The descriptions are kept in the cache directory. Two processes may write that file at
once: each writes all of it, and the last one stays; the models of the other one are then read again, once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from localspec import home
from localspec._version import __version__
from localspec.errors import LocalspecError, ModelInvalid
from localspec.models.catalogue import BUNDLED, BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.directory import is_directory_model
from localspec.models.gguf import first_part, read_bounded
from localspec.models.model import Model, describe, format_of, model_at, signature_of, text_of
from localspec.models.names import parse, pulled_name, typed_names
from localspec.models.stores import ModelStore, StoredModel, stores_of
from localspec.protocol.frames import Signature
from localspec.protocol.messages import ModelDescription, Placement, StoreDescription

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

Sighting = list[tuple[str, StoredModel]]
"""one model as it was found, with the names of the stores; the first is the one to show"""


class Disk(NamedTuple):
    found: list[Model]
    stores: list[StoreDescription]

    @property
    def models(self) -> list[ModelDescription]:
        return [each.description for each in self.found]


def mark_loaded(
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
        self.stores: list[ModelStore] = []
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
    with _ModelIndex() as index:
        beside = [index.model(model_at(each).own_name, each) for each in models if first_part(each) == each]
    return [*beside, *known]


def _read(stores: Iterable[ModelStore]) -> Disk:
    report: list[StoreDescription] = []
    sightings = _once(_scan_stores(stores, report))
    with _ModelIndex() as index:
        models = [_describe_sighting(sighting, index) for sighting in sightings]
    return Disk(_name_models(models, sightings), report)


def _scan_stores(
    stores: Iterable[ModelStore], report: list[StoreDescription]
) -> Iterator[tuple[str, StoredModel]]:
    """The bundled models, and what is in the stores; which are there is added to ``report``."""
    for name in (BUNDLED_TARGET, BUNDLED_DRAFT):
        yield BUNDLED, StoredModel(bundled_model(name), name)
    for store in stores:
        found, problem, place = list[StoredModel](), None, text_of(store.root)
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


def _once(everything: Iterable[tuple[str, StoredModel]]) -> list[Sighting]:
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


def _keys(found: StoredModel) -> Iterator[object]:
    try:
        place = os.stat(found.path)
    except (OSError, ValueError):
        yield found.path
        return
    yield place.st_dev, place.st_ino
    if found.digest is not None:  # with the size, as a truncated copy has another one
        yield found.digest, place.st_size


# Descriptions.


class _IndexEntry(msgspec.Struct, array_like=True):
    signature: Signature
    model: ModelDescription


class _IndexFile(msgspec.Struct):
    layout: str
    models: dict[str, _IndexEntry]


class _ModelIndex:
    """Descriptions by path, from the last time they were read. At its end it is written if some are new, also
    where Ctrl-C ended the reading; where that fails, those are read again next time."""

    def __init__(self) -> None:
        self._content = _IndexFile(LAYOUT, {})
        self._path: Path | None = None
        self._changed = False
        with contextlib.suppress(LocalspecError, msgspec.DecodeError, ValueError, RecursionError):
            self._path = home.cache_dir() / "models.json"
            content = msgspec.json.decode(read_bounded(self._path, MAX_INDEX), type=_IndexFile)
            if content.layout == LAYOUT:
                self._content = content

    def __enter__(self) -> _ModelIndex:
        return self

    def __exit__(self, *_: object) -> None:
        if self._changed and self._path is not None:
            models = {path: entry for path, entry in self._content.models.items() if os.path.lexists(path)}
            content = msgspec.json.encode(_IndexFile(LAYOUT, models)).decode()
            with contextlib.suppress(OSError):
                home.write_private(self._path, content)

    def model(self, name: str, path: Path) -> Model:
        """The model at a path, described under this name; read where its files have changed since."""
        key, signature = text_of(path), signature_of(path)
        entry = self._content.models.get(key)
        if entry is None or entry.signature != signature or entry.model.id != text_of(name):
            found = Model(path, format_of(path), stamp=signature)
            entry = self._content.models[key] = _IndexEntry(signature, describe(name, found))
            self._changed = True
        return Model(path, entry.model.format, known=entry.model, stamp=signature)


def _describe_sighting(sighting: Sighting, index: _ModelIndex) -> Model:
    (store, found), *others = sighting
    if found.problem is None:
        model = index.model(found.id, found.path)
    else:
        model = model_at(found.path)
        known = describe(found.id, model, ModelInvalid(found.problem, found.remedy))
        model = dataclasses.replace(model, known=known)
    also = dict.fromkeys(text_of(each.path) for _, each in others if each.path != found.path)
    return dataclasses.replace(model, known=replace(model.description, store=store, also=tuple(also)))


# Names.


def _name_models(models: list[Model], sightings: list[Sighting]) -> list[Model]:
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
