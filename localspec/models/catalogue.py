"""Which models there are, and which one a name means: the bundled pair, the configured directories, and
what other programs keep on this disk."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.errors import ModelAmbiguous, ModelInvalid, ModelNotFound
from localspec.models.bundled import (
    BUNDLED,
    BUNDLED_DRAFT,
    BUNDLED_TARGET,
    bundled_dir,
    bundled_model,
    bundled_models,
)
from localspec.models.description import (
    BACKENDS,
    FORMATS,
    Format,
    context_of,
    describe,
    format_of,
    text_of,
    weights_size,
)
from localspec.models.directory import is_directory_model, read_directory
from localspec.models.disk import called, read_disk
from localspec.models.fingerprint import directory_tokens, gguf_tokens
from localspec.models.gguf import read_header
from localspec.models.names import meant
from localspec.models.split import split_of
from localspec.models.stores.folder import scan_folder
from localspec.models.stores.hub import repository_of
from localspec.models.stores.ollama import tag_of
from localspec.protocol.messages import ModelDescription

__all__ = [
    "BACKENDS",
    "BUNDLED",
    "BUNDLED_DRAFT",
    "BUNDLED_TARGET",
    "FORMATS",
    "Format",
    "bundled_dir",
    "bundled_model",
    "describe",
    "find_model",
    "format_of",
    "list_models",
    "model_files",
    "model_name",
    "place_of",
    "read_disk",
    "real_tokens",
    "trained_context",
    "weights_size",
]

SHOWN = 8
"""matches of an ambiguous name that are told"""


def model_files(model_dirs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """(id, path) of the bundled models and of all in the directories, in each place GGUF files first.

    An id is the directory's name, or the file's without its ending; models of two formats may share it.
    """
    yield from bundled_models()
    for directory in model_dirs:
        try:
            found = scan_folder(_path(directory))
            yield from ((each.id, each.path) for each in found if each.problem is None)
        except (OSError, ValueError):
            continue


def list_models(model_dirs: Iterable[str] = ()) -> list[ModelDescription]:
    """Every model on this disk, described; reading the headers only of those that have changed."""
    return read_disk(model_dirs).models


def find_model(name: str, model_dirs: Iterable[str] = (), *, format: Format | None = None) -> Path:
    """The file or directory that ``name`` means: ``bundled``, a path, or a name of :func:`list_models`.

    What has that very name comes before what begins so; the bundled models and the configured
    directories come before all that is elsewhere. Of a name that stands for models of both formats,
    ``format`` chooses, or else it is the GGUF file.

    Raises :class:`ModelNotFound`, naming the nearest, :class:`ModelAmbiguous`, naming the matches, and
    :class:`ModelInvalid` for a directory that is no model's.
    """
    if name == BUNDLED:
        return bundled_model(BUNDLED_TARGET, format or "gguf")
    path = _path(name)
    is_directory = os.path.isdir(path)
    if is_path(name) or (os.path.exists(path) and not is_directory):
        return _at(path)
    dirs = tuple(model_dirs)
    found = _of_id(name, dirs, format) or _of_name(name, dirs, format)
    if found is not None:
        return found
    if is_directory:  # last: a folder that happens to be here takes no model's place either
        return _at(path)
    known = (each for model in list_models(dirs) for each in model.names)
    near = difflib.get_close_matches(name, [BUNDLED, *dict.fromkeys(known)], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ModelNotFound(f"there is no model named {name!r}{hint}")


def _of_id(name: str, model_dirs: tuple[str, ...], format: Format | None) -> Path | None:
    """The bundled or configured model of this id. Nothing takes a bundled model's place."""
    found: dict[Format, Path] = {}
    is_bundled = name in (BUNDLED_TARGET, BUNDLED_DRAFT)
    for id, path in bundled_models() if is_bundled else model_files(model_dirs):
        if id == name:
            found.setdefault(format_of(path), path)
    return (found.get(format or "gguf") or next(iter(found.values()))) if found else None


def _of_name(name: str, model_dirs: tuple[str, ...], format: Format | None) -> Path | None:
    """The model that any store calls so; raises :class:`ModelAmbiguous`."""
    found = called(name)
    if len(found) == 1:  # no header needs to be read to know which one that is
        return found[0]
    models = meant(name, list_models(model_dirs))
    names = sorted({model.names[0] for model in models})
    if len(names) > 1:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ModelAmbiguous(f"{name!r} may be {', '.join(names[:SHOWN])}{more}")
    if not models:
        return None
    chosen = min(models, key=lambda model: model.format != (format or "gguf"))
    if chosen.problem is not None:
        raise ModelInvalid(chosen.problem, chosen.remedy)
    return Path(chosen.path)


def _at(path: Path) -> Path:
    """The model at a path, which is there and may be one."""
    if not os.path.exists(path):
        raise ModelNotFound(f"there is no file {path}")
    if os.path.isdir(path) and not is_directory_model(path):
        raise ModelInvalid(
            f"{path} is a directory without a config.json",
            "Give the path of a GGUF file, or of a directory with config.json and *.safetensors.",
        )
    return Path(os.path.abspath(path))  # unresolved: a store's links have names, what they lead to has none


def is_path(name: str) -> bool:
    """Whether a name is a path's; other names may hold a ``/``, as those of repositories do."""
    return name.startswith(("/", "./", "../", "~")) or name.endswith(".gguf") or _exists_below(name)


def _exists_below(name: str) -> bool:
    return "/" in name and os.path.exists(_path(name))


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))


def _resolved(path: Path) -> Path:
    """Where a path leads in the end. A part of a split model keeps its name: the others are beside it."""
    # realpath, as Path.resolve() fails where links lead in a circle.
    return _real(path) if split_of(path) is None else _real(path.parent) / path.name


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def place_of(path: Path) -> str:
    """Where a model lies on the disk, alike for all ways to name it, and as JSON can hold it."""
    return text_of(_resolved(path))


def model_name(path: Path) -> str:
    """What a model's file or directory is called; by its store, where its own name is a digest."""
    if is_directory_model(path):
        repository = repository_of(path) if path.parent.name == "snapshots" else None
        return path.name if repository is None else repository.rpartition("/")[2]
    split = split_of(path)
    return tag_of(path) or (path.stem if split is None else split.stem)


def real_tokens(path: Path) -> list[tuple[int, bytes]]:
    """(id, bytes) of a model's real tokens, alike in both formats; raises :class:`ModelError`."""
    return directory_tokens(path) if format_of(path) == "mlx" else gguf_tokens(read_header(path))


def trained_context(path: Path) -> int | None:
    """How many tokens a model was trained for, if it says so; raises :class:`ModelError`."""
    if format_of(path) == "mlx":
        return read_directory(path).context
    return context_of(read_header(path, texts=False))
