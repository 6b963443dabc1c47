"""Instructions for a model in a store: to replace a damaged one, or to remove one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.models.names import pulled_name
from localspec.models.split import split_of
from localspec.models.stores.hub import repository_of
from localspec.models.stores.store import CONFIGURED, TITLES
from localspec.protocol.messages import ModelDescription


def mended(model: ModelDescription) -> str:
    """The remedy that replaces or removes a damaged model, by its store."""
    if model.store == "bundled":
        return "Install localspec again."
    deletion = _deletion(model)
    if model.store == "ollama":
        return f"Remove it: {deletion}; then `ollama pull {shlex.quote(model.id)}`, or create it again."
    if model.store == "huggingface":  # a file of full size counts as complete: removal first
        return f"Remove it: {deletion}; then download it again: {_pull(model)}."
    return f"Replace it by a complete copy, or delete it: {deletion}."


def kept(model: ModelDescription) -> str:
    """The program or directory that has a model, and its path, as a clause."""
    owner = {
        "bundled": "it comes with localspec",
        CONFIGURED: "it is in one of your model_dirs",
        None: "it is in no known store",
    }.get(model.store, f"it is in {TITLES.get(model.store or '', model.store)}")
    return f"{owner}: {model.path}"


def removed(model: ModelDescription) -> str:
    """The instruction that removes a model from its store."""
    if model.store == "bundled":
        return "It is a part of localspec, and is removed with it."
    if model.store in ("lmstudio", "jan"):
        return f"Remove it in {TITLES[model.store]}."
    return f"Remove it: {_deletion(model)}."


def _pull(model: ModelDescription) -> str:
    """The command that downloads a model from the hub."""
    path = Path(model.path)
    repository = repository_of(path) or model.id
    name = repository if model.format == "mlx" else pulled_name(repository, path)
    return f"`localspec models pull {shlex.quote(name)}{' --mlx' if model.format == 'mlx' else ''}`"


def _deletion(model: ModelDescription) -> str:
    """The command that deletes a model's files and nothing else; none for a directory outside of the hub's
    cache, which may contain other files."""
    path = Path(model.path)
    if model.store == "ollama":
        return f"`ollama rm {shlex.quote(model.id)}`"
    if model.store == "huggingface":
        repository = f"hf://models/{repository_of(path)}"
        inside = Path(model.path.rpartition("/snapshots/")[2].partition("/")[2])
        files = (f"{repository}/{inside.with_name(name)}" for name in _file_names(path))
        return _command("hf cache rm", (repository,) if model.format == "mlx" else files)
    if os.path.isdir(path):
        return f"the model's files in {path}"
    return _command("rm", (str(path.with_name(name)) for name in _file_names(path)))


def _command(name: str, arguments: Iterable[str]) -> str:
    return f"`{name} {shlex.join(arguments)}`"


def _file_names(path: Path) -> Iterator[str]:
    """The file of a model, or all of its parts, there or not."""
    split = split_of(path)
    if split is None:
        yield path.name
    else:
        yield from (split.part(number).name for number in range(1, split.total + 1))
