"""All models on this disk: found in every store, each listed once, read where they have changed, named."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from localspec.errors import ModelInvalid
from localspec.models.bounded import REMEDY
from localspec.models.bundled import BUNDLED, BUNDLED_TARGET, bundled_models
from localspec.models.description import BACKENDS, Format, text_of
from localspec.models.directory import is_directory_model
from localspec.models.gguf import MISSING_PART, RENAMED_PART
from localspec.models.index import Index, index_path
from localspec.models.model import Model, model_at
from localspec.models.names import parse, pulled_name, typed_names
from localspec.models.split import first_part
from localspec.models.stores.found import Found
from localspec.models.stores.mending import mended
from localspec.models.stores.store import Store, User, stores_of
from localspec.protocol.messages import ModelDescription, StoreDescription

GENERAL = (ModelInvalid.default_remedy, REMEDY, MISSING_PART, RENAMED_PART)
"""remedies for any damaged model, replaced by the better one of its store"""
MAX_BESIDE = 100
"""models of one directory that are considered as drafts"""
OLLAMAS_HUB = "hf.co/"
"""beginning of Ollama's names of the hub's models"""
FRESH_S = 2.0
"""seconds for which names are looked up in the last reading of the disk: a request looks up several, and a
client may repeat one that no model has"""


class Disk(NamedTuple):
    """Every model, by stores; and the stores that exist."""

    found: list[Model]
    stores: list[StoreDescription]

    @property
    def models(self) -> list[ModelDescription]:
        return [each.description for each in self.found]


class _Sighting(NamedTuple):
    """A model as it was found first, the name of that store, and where and how else it was found."""

    found: Found
    store: str
    others: list[Found]


def read_disk(model_dirs: Iterable[str] = (), *, user: User | None = None) -> Disk:
    """Read every store. A store or model that cannot be read is described with the reason, never raised."""
    return _read(stores_of(user or User.here(), model_dirs))


class _Recent:
    """The last reading of these stores, and the time until which it is used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stores: list[Store] = []
        self.until = -1.0
        self.disk = Disk([], [])


_recent = _Recent()


def recent_disk(model_dirs: Iterable[str] = ()) -> Disk:
    """As :func:`read_disk`, but up to :data:`FRESH_S` old; a caller waits for a reading under way."""
    stores = list(stores_of(User.here(), model_dirs))
    with _recent.lock:
        if stores != _recent.stores or time.monotonic() >= _recent.until:
            _recent.disk, _recent.stores = _read(stores), stores
            _recent.until = time.monotonic() + FRESH_S
        return _recent.disk


def known_beside(target: Model, model_dirs: Iterable[str] = ()) -> list[Model]:
    """The models of the stores, after those in the directory of a target that is in none of them."""
    known = recent_disk(model_dirs).found
    if target.known is not None or any(target.place in each.places for each in known):
        return known
    index = Index(index_path())
    paths = sorted(target.path.parent.glob("*.gguf" if target.format == "gguf" else "*/"))[:MAX_BESIDE]
    models = (path for path in paths if path.is_file() or is_directory_model(path))
    beside = [index.model(model_at(each).own_name, each) for each in models if first_part(each) == each]
    index.save()
    return [*beside, *known]


def forget_recent() -> None:
    """Make the next lookup read the disk anew, as a file was seen to have changed."""
    with _recent.lock:
        _recent.until = -1.0


def _read(stores: Iterable[Store]) -> Disk:
    report: list[StoreDescription] = []
    sightings = _once(_everything(stores, report))
    index = Index(index_path())
    try:
        models = [_read_one(sighting, index) for sighting in sightings]
    finally:
        index.save()  # what was read until Ctrl-C need not be read again
    return Disk(_named(models, sightings), report)


def _everything(stores: Iterable[Store], report: list[StoreDescription]) -> Iterator[tuple[str, Found]]:
    """The bundled models, and what is in the stores; which are there is added to ``report``."""
    for name, path in bundled_models():
        yield BUNDLED, Found(path, name)
    for store in stores:
        found, problem = _scanned(store)
        if found is not None:
            report.append(
                StoreDescription(
                    name=store.name,
                    path=text_of(store.root),
                    problem=problem,
                    remedy=store.remedy if problem else None,
                )
            )
            yield from ((store.name, each) for each in found)


def _scanned(store: Store) -> tuple[list[Found] | None, str | None]:
    """The models in a store (None if it does not exist), and the reason if not all could be read."""
    found: list[Found] = []
    try:
        if not stat.S_ISDIR(os.stat(store.root).st_mode):
            return None, None
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: not a valid path
        return None, None
    except OSError:
        pass  # the scan fails alike
    try:
        found.extend(store.scan(store.root))
    except OSError as error:
        return found, f"{text_of(store.root)} cannot be read: {error.strerror}"
    return found, None


def _once(everything: Iterable[tuple[str, Found]]) -> list[_Sighting]:
    """Each model once, however often it was found: by its place on the disk, or its digest."""
    models: list[_Sighting] = []
    known: dict[object, _Sighting] = {}
    for store, found in everything:
        keys = list(_keys(found))
        model = next((known[key] for key in keys if key in known), None)
        if model is None:
            model = _Sighting(found, store, [])
            models.append(model)
        else:
            model.others.append(found)
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


def _read_one(sighting: _Sighting, index: Index) -> Model:
    found = sighting.found
    model = index.model(found.id, found.path) if found.problem is None else _unread(found)
    also = dict.fromkeys(text_of(other.path) for other in sighting.others if other.path != found.path)
    described = replace(model.description, store=sighting.store, also=tuple(also))
    if described.remedy in GENERAL:
        described = replace(described, remedy=mended(described))
    return dataclasses.replace(model, known=described)


def _unread(found: Found) -> Model:
    """The model of a file that its store reported as broken; the file is not read."""
    try:
        size = os.stat(found.path).st_size
    except (OSError, ValueError):
        size = 0
    format: Format = "mlx" if os.path.isdir(found.path) else "gguf"
    described = ModelDescription(
        id=text_of(found.id),
        path=text_of(found.path),
        format=format,
        backend=BACKENDS[format],
        size=0 if format == "mlx" else size,
        problem=text_of(found.problem or ""),
        remedy=found.remedy or ModelInvalid.default_remedy,
    )
    return Model(found.path, format, known=described)


def _named(models: list[Model], sightings: list[_Sighting]) -> list[Model]:
    """Give each model its names: the one to type first, then those of its stores."""
    both = [(model.description, found) for model, found in zip(models, sightings, strict=True)]
    parts = [None if _has_no_other(model) else parse(model, found.found.hint) for model, found in both]
    ids = [_ids(model, found) for model, found in both]
    # A broken model takes no name: it may be another's.
    taken = [() if model.problem else own for model, own in zip(models, ids, strict=True)]
    named = []
    for model, name, own, taken_apart in zip(models, typed_names(parts, taken), ids, parts, strict=True):
        names = tuple(dict.fromkeys([name, *own] if name else own))
        known = replace(model.description, names=names)
        named.append(dataclasses.replace(model, known=known, parts=taken_apart))
    return named


def _has_no_other(model: ModelDescription) -> bool:
    """True if a model has only the name of its store."""
    return model.problem is not None or model.store == BUNDLED


def _ids(model: ModelDescription, found: _Sighting) -> list[str]:
    """The names of a model in its stores; and its path, where that differs from the shown one."""
    places = (found.found, *found.others)
    ids = [text_of(each.id) for each in places]
    ids += [id.removesuffix(":latest") for id in ids]
    ids += [id.removeprefix(OLLAMAS_HUB) for id in ids]
    for each in places:
        if "/" in each.hint:
            ids += [each.hint, pulled_name(each.hint, each.path)]
    ids += [model.path] if model.path != str(found.found.path) else []
    return ids + [BUNDLED] * (model.store == BUNDLED and model.id == BUNDLED_TARGET)
