"""Instructions for a model in a store: to replace a damaged one, or to remove one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from localspec.models.names import pulled_name
from localspec.models.split import split_of
from localspec.models.stores.found import UNFINISHED
from localspec.models.stores.hub import repository_of
from localspec.models.stores.store import CONFIGURED, TITLES
from localspec.protocol.messages import ModelDescription

PARTIAL = "-partial"
"""suffix of the names of Ollama's unfinished blobs"""


def mended(model: ModelDescription) -> str:
    """The remedy that replaces or removes a damaged model, by its store."""
    if model.store == "ollama" and not model.path.endswith(PARTIAL):
        name = shlex.quote(model.id)
        return f"Remove it: `ollama rm {name}`; then `ollama pull {name}`, or create it again."
    if model.store == "bundled":
        return "Install localspec again."
    if model.store == "huggingface" and (model.problem or "").startswith(UNFINISHED):
        return f"Download what is missing: {_pull(model)}."
    if model.store == "huggingface":
        return renewed(model, _deletion_from_hub(model))
    again = {
        "llama.cpp": "Download it again with llama.cpp",
        "lmstudio": "Download it again in LM Studio",
        "ollama": "Pull its model again with Ollama",
        "jan": "Download it again in Jan",
    }.get(model.store or "", "Replace it by a complete copy")
    return f"{again}, or delete it: {_deletion(model)}."


def renewed(model: ModelDescription, removal: str) -> str:
    """The remedy for a damaged model of the hub; removal first, as a file of full size counts as complete."""
    return f"Remove it: {removal}; then download it again: {_pull(model)}."


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
    if model.store == "ollama" and not model.path.endswith(PARTIAL):
        return f"Remove it with Ollama: `ollama rm {shlex.quote(model.id)}`."
    if model.store == "huggingface":
        return f"Remove it from the hub's cache: {_deletion_from_hub(model)}."
    if model.store in ("lmstudio", "jan"):
        return f"Remove it in {TITLES[model.store]}."
    return f"Delete it by hand: {_deletion(model)}."


def _pull(model: ModelDescription) -> str:
    """The command that downloads a model from the hub."""
    path = Path(model.path)
    repository = repository_of(path) or model.id
    name = repository if model.format == "mlx" else pulled_name(repository, path)
    return f"`localspec models pull {shlex.quote(name)}{' --mlx' if model.format == 'mlx' else ''}`"


def _deletion_from_hub(model: ModelDescription) -> str:
    """The command that deletes a model's files from the hub's cache, and nothing else of its repository; a
    directory for MLX is all of one."""
    path = Path(model.path)
    repository = f"hf://models/{repository_of(path)}"
    if model.format == "mlx":
        return f"`hf cache rm {shlex.quote(repository)}`"
    if "snapshots" not in path.parts:  # a blob that nothing leads to yet
        return _deletion(model)
    folder = path.parts[len(path.parts) - path.parts[::-1].index("snapshots") + 1 : -1]
    targets = (shlex.quote("/".join((repository, *folder, name))) for name in _file_names(path))
    return f"`hf cache rm {' '.join(targets)}`"


def _deletion(model: ModelDescription) -> str:
    """The command that deletes a model's files; none for a directory, which may contain other files."""
    path = Path(model.path)
    if os.path.isdir(path):
        return f"the model's files in {path}"
    return f"`rm {' '.join(shlex.quote(str(path.with_name(name))) for name in _file_names(path))}`"


def _file_names(path: Path) -> Iterator[str]:
    """The file of a model, or all of its parts, there or not."""
    split = split_of(path)
    if split is None:
        yield path.name
    else:
        yield from (
            f"{split.stem}-{number:05}-of-{split.total:05}.gguf" for number in range(1, split.total + 1)
        )
