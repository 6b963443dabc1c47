"""Which models there are, and which one a name means: the bundled pair, the configured directories, and
what other programs keep on this disk."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.errors import ModelInvalid, ModelNotFound
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
from localspec.models.disk import read_disk, recent_disk
from localspec.models.fingerprint import directory_tokens, gguf_tokens
from localspec.models.gguf import read_header
from localspec.models.meaning import chosen, covered, meant
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
    "all_places",
    "describe",
    "find_all",
    "find_model",
    "format_of",
    "list_models",
    "listed",
    "model_files",
    "model_name",
    "place_of",
    "read_disk",
    "real_tokens",
    "shown_name",
    "trained_context",
    "weights_size",
]

SUFFIX = ".gguf"
HUBS_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
"""what ``models pull`` may take"""
BUNDLED_NAMES = {BUNDLED: BUNDLED_TARGET, BUNDLED_TARGET: BUNDLED_TARGET, BUNDLED_DRAFT: BUNDLED_DRAFT}


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
    """Every model on this disk, as it was a moment ago; of headers only those that have changed are read."""
    return recent_disk(model_dirs).models


def find_model(name: str, model_dirs: Iterable[str] = (), *, format: Format | None = None) -> Path:
    """The file or directory that ``name`` means: one of the bundled models, or what lies at a path, or a
    model of :func:`list_models` (:mod:`localspec.models.meaning` tells which). Of a model in several formats
    ``format`` chooses, or else it is the GGUF file. A plain name is no path: the daemon's directory is ``/``,
    where `tmp` and `lib` are.

    Raises :class:`ModelNotFound`, naming the nearest, :class:`ModelAmbiguous`, naming the matches, and
    :class:`ModelInvalid` for one that cannot be used.
    """
    given = _given(name, format)
    if given is not None:
        return given
    named = recent_disk(model_dirs).named
    if found := meant(name, named):
        return chosen(name, found, format).path
    path = _path(name)
    if _may_be_path(name) and (os.path.isdir(path) or name.endswith(SUFFIX)):
        return _at(path)
    known = {each.lower(): each for each in (BUNDLED, *(n for one in named for n in one.model.names))}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    pull = f"`localspec models list` shows what is here; `localspec models pull {name}` gets it from the hub."
    remedy = pull if HUBS_NAME.fullmatch(name) else None
    raise ModelNotFound(f"there is no model named {name!r}{hint}", remedy)


def find_all(name: str, model_dirs: Iterable[str] = ()) -> list[Path]:
    """All that settings for ``name`` are for: every model of a ``family:size``, a model in both formats.

    Raises as :func:`find_model`.
    """
    dirs = tuple(model_dirs)
    if _given(name) is None and (found := covered(name, recent_disk(dirs).named)):
        return [each.path for each in found]
    return [find_model(name, dirs, format=format) for format in FORMATS]


def _given(name: str, format: Format | None = None) -> Path | None:
    """What needs no looking up: a bundled model, whose place nothing takes, and what a path leads to."""
    if bundled := BUNDLED_NAMES.get(name.lower()):
        return bundled_model(bundled, format or "gguf")
    path = _path(name)
    is_file = _may_be_path(name) and os.path.exists(path) and not os.path.isdir(path)
    # Bytes that are no text are shown as U+FFFD: which they are only the list knows.
    return _at(path) if is_file or (is_path(name) and "\ufffd" not in name) else None


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
    path = _path(name)
    from_somewhere = name.startswith(("/", "./", "../")) or path != Path(name)
    return from_somewhere or ("/" in name and os.path.exists(path))


def _may_be_path(name: str) -> bool:
    """Return whether a name may be a path: it has a ``/``, a leading ``~`` or :data:`SUFFIX`, or is dots."""
    return "/" in name or name.startswith("~") or name.endswith(SUFFIX) or name in (".", "..")


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


def all_places(model: ModelDescription) -> set[str]:
    """Where a model was found, in all stores that have it."""
    return {place_of(Path(path)) for path in (model.path, *model.also)}


def listed(path: Path, model_dirs: Iterable[str] = ()) -> ModelDescription | None:
    """The model of :func:`list_models` that lies at ``path``, if one does."""
    place = place_of(path)
    return next((model for model in list_models(model_dirs) if place in all_places(model)), None)


def shown_name(path: Path, model_dirs: Iterable[str] = ()) -> str:
    """What people are told that a model is called: the name that the list shows, which can be typed; of one
    that is in no store, what its file is called."""
    if _resolved(path).is_relative_to(_real(bundled_dir())):
        return model_name(path)
    found = listed(path, model_dirs)
    return model_name(path) if found is None else found.names[0]


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
