"""What a person does about a model in a store: get a whole copy of one that is damaged, or be rid of one."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from localspec.models.names import pulled_name
from localspec.models.split import split_of
from localspec.models.stores.hub import repository_of
from localspec.models.stores.store import CONFIGURED, TITLES
from localspec.protocol.messages import ModelDescription

PARTIAL = "-partial"
"""how the names of blobs end that Ollama has in part"""


def mended(model: ModelDescription) -> str:
    """How a whole copy of a damaged model is had, or the damaged one is gone, where it is kept."""
    if model.store == "ollama" and not model.path.endswith(PARTIAL):
        return f"Download it anew: `ollama rm {model.id}`, then `ollama pull {model.id}`."
    if model.store == "bundled":
        return "Install localspec again."
    if model.store == "huggingface":
        return f"Download it again: `localspec models pull {_on_hub(model)}`."
    again = {
        "llama.cpp": "Download it again with llama.cpp",
        "lmstudio": "Download it again in LM Studio",
        "ollama": "Pull its model again with Ollama",
        "jan": "Download it again in Jan",
    }.get(model.store or "", "Put a whole copy in its place")
    return f"{again}, or delete it: {_deletion(model)}."


def kept(model: ModelDescription) -> str:
    """Who has a model, and where."""
    owner = {
        "bundled": "it comes with localspec",
        CONFIGURED: "it lies in your model_dirs",
        None: "it lies elsewhere",
    }.get(model.store, f"it is in {TITLES.get(model.store or '', model.store)}")
    return f"{owner}: {model.path}"


def removed(model: ModelDescription) -> str:
    """How a model goes from the store that has it."""
    if model.store == "bundled":
        return "It is a part of localspec, and stays as long as that does."
    if model.store == "ollama" and not model.path.endswith(PARTIAL):
        return f"Remove it there: `ollama rm {model.id}`."
    if model.store == "huggingface":
        return f"Remove it there: `hf cache rm {_in_hubs_cache(model)}`."
    if model.store in ("lmstudio", "jan"):
        return f"Remove it in {TITLES[model.store]}."
    return f"Delete it by hand: {_deletion(model)}."


def _on_hub(model: ModelDescription) -> str:
    """What ``localspec models pull`` takes for it."""
    path = Path(model.path)
    repository = repository_of(path) or model.id
    return f"{repository} --mlx" if model.format == "mlx" else pulled_name(repository, path)


def _in_hubs_cache(model: ModelDescription) -> str:
    """What ``hf cache rm`` takes for it: one file of a repository, or all of it."""
    path = Path(model.path)
    repository = repository_of(path)
    if model.format == "gguf" and model.parts == 1 and "snapshots" in path.parts:
        name = "/".join(path.parts[path.parts.index("snapshots") + 2 :])
        return shlex.quote(f"hf://models/{repository}/{name}")
    return f"model/{repository}"


def _deletion(model: ModelDescription) -> str:
    """The command that deletes the file of a model, all of its parts, or its directory."""
    if split := split_of(Path(model.path)):
        stem = shlex.quote(str(split.path.with_name(split.stem)))
        return f"`rm {stem}-*-of-{split.total:05}.gguf`"
    recursive = "-r " if os.path.isdir(model.path) else ""
    return f"`rm {recursive}{shlex.quote(model.path)}`"
