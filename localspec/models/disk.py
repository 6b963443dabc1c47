"""All models on this disk: found in every store, each listed once, read where they have changed, named."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from localspec.models.bundled import BUNDLED, BUNDLED_TARGET, bundled_models
from localspec.models.description import BACKENDS, Format, text_of
from localspec.models.index import Index, index_path
from localspec.models.names import typed_names
from localspec.models.stores.found import Found
from localspec.models.stores.store import Store, User, stores_of
from localspec.protocol.messages import ModelDescription, StoreDescription

Progress = Callable[[str, float], None]
"""what is being read, and the fraction of models that were, 0 to 1"""


class Disk(NamedTuple):
    """Every model, by stores; and the stores that are there."""

    models: list[ModelDescription]
    stores: list[StoreDescription]


class Model(NamedTuple):
    """A model as it was found first, the name of that store, and where and how else it was found."""

    found: Found
    store: str
    others: list[Found]


def read_disk(
    model_dirs: Iterable[str] = (),
    *,
    user: User | None = None,
    progress: Progress = lambda what, fraction: None,
) -> Disk:
    """Look into every store. What cannot be read is told with its reason, never raised."""
    stores: list[StoreDescription] = []
    models = _once(_everything(stores_of(user or User.here(), model_dirs), stores))
    index = Index(index_path())
    described = []
    try:
        for number, model in enumerate(models):
            if not index.knows(model.found.path):
                progress(f"reading {text_of(model.found.id)}", number / len(models))
            described.append(_described(model, index))
    finally:
        index.save()  # what was read until Ctrl-C need not be read again
    return Disk(_named(described, models), stores)


def called(id: str, *, user: User | None = None) -> list[Path]:
    """The files and directories that other programs call so, found without reading any."""
    models = _once(_everything(stores_of(user or User.here()), []))
    names = (id, f"{id}:latest")
    return [
        model.found.path
        for model in models
        if model.found.problem is None and any(each.id in names for each in (model.found, *model.others))
    ]


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
    """What is in a store, None if it is not there; and why no more could be read."""
    found: list[Found] = []
    try:
        if not stat.S_ISDIR(os.stat(store.root).st_mode):
            return None, None
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no name of a file
        return None, None
    except OSError as error:
        return found, f"{text_of(store.root)} cannot be read: {error.strerror}"
    try:
        found.extend(store.scan(store.root))
    except OSError as error:
        return found, f"{text_of(store.root)} cannot be read: {error.strerror}"
    return found, None


def _once(everything: Iterable[tuple[str, Found]]) -> list[Model]:
    """Each model once, however often it was found: by its place on the disk, or its digest."""
    models: list[Model] = []
    known: dict[object, Model] = {}
    for store, found in everything:
        keys = list(_keys(found))
        model = next((known[key] for key in keys if key in known), None)
        if model is None:
            model = Model(found, store, [])
            models.append(model)
        else:
            model.others.append(found)
        known.update(dict.fromkeys(keys, model))
    return models


def _keys(found: Found) -> Iterator[object]:
    try:
        place = os.stat(found.path)
        yield place.st_dev, place.st_ino
    except (OSError, ValueError):
        yield found.path
    if found.digest is not None:
        yield found.digest


def _described(model: Model, index: Index) -> ModelDescription:
    found = model.found
    described = index.describe(found.id, found.path) if found.problem is None else _unread(found)
    also = dict.fromkeys(text_of(other.path) for other in model.others if other.path != found.path)
    return replace(described, store=model.store, also=tuple(also))


def _unread(found: Found) -> ModelDescription:
    """What needs no reading to be known as broken."""
    try:
        size = os.stat(found.path).st_size
    except (OSError, ValueError):
        size = 0
    format: Format = "mlx" if os.path.isdir(found.path) else "gguf"
    return ModelDescription(
        id=text_of(found.id),
        path=text_of(found.path),
        format=format,
        backend=BACKENDS[format],
        size=0 if format == "mlx" else size,
        problem=text_of(found.problem or ""),
        remedy=found.remedy,
    )


def _named(described: list[ModelDescription], models: list[Model]) -> list[ModelDescription]:
    """Gives each model its names: the one to type first, then what its stores call it."""
    usable = [
        (model, found.found.hint)
        for model, found in zip(described, models, strict=True)
        if model.problem is None and model.store != BUNDLED
    ]
    typed = iter(typed_names([model for model, _ in usable], [hint for _, hint in usable]))
    named = []
    for model, found in zip(described, models, strict=True):
        first = () if model.problem or model.store == BUNDLED else (next(typed),)
        ids = [text_of(each.id) for each in (found.found, *found.others)]
        ids += [id.removesuffix(":latest") for id in ids]
        ids += [each.hint for each in (found.found, *found.others) if "/" in each.hint]
        ids += [BUNDLED] if model.store == BUNDLED and model.id == BUNDLED_TARGET else []
        named.append(replace(model, names=tuple(dict.fromkeys((*first, *ids)))))
    return named
