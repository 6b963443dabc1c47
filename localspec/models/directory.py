"""Model directories as MLX reads them: ``config.json``, weights in safetensors files, ``tokenizer.json``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from localspec.errors import ModelInvalid, ModelNotFound
from localspec.models.bounded import REMEDY, decode_json, read_bounded, unreadable
from localspec.models.weights import Weight, read_weights

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_CONFIG = 16 * 1024 * 1024
# The index of the largest models of 2026 has 9 MB.
MAX_INDEX = 100 * 1024 * 1024
# The largest integer on the wire, and more than any model has.
MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """The configuration and weights of a model directory: ``weights`` are the files to load, ``size`` their
    bytes."""

    path: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]
    quantisation: str
    parameters: int
    size: int

    @property
    def architecture(self) -> str:
        name = self.config.get("model_type")
        if not isinstance(name, str):
            return "unknown"
        return name.encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair

    @property
    def context(self) -> int | None:
        """The context length in tokens that the model was trained for; None if its configuration has none."""
        return number_of(self.config, "max_position_embeddings")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def is_directory_model(path: Path) -> bool:
    """Return True if this is a directory with a ``config.json``."""
    return os.path.isfile(path / CONFIG)


def read_directory(path: Path) -> ModelDirectory:
    """Read a model directory's configuration and check its weight files' headers.

    Raises :class:`ModelNotFound` for a directory that is not there, :class:`ModelInvalid` for one
    that is not a model's, is incomplete, needs code of its own, or has a file that cannot be used.
    """
    if not os.path.isdir(path):
        if os.path.exists(path):
            raise ModelInvalid(f"{path} is a file, not a model directory", REMEDY)
        raise ModelNotFound(f"there is no directory {path}")
    config = read_config(path)
    if "model_file" in config:
        raise ModelInvalid(
            f"{path} needs code of its own: its config.json has the key model_file",
            "Choose another model: localspec never runs code that comes with a model.",
        )
    weights = _weight_files(path)
    tensors: dict[str, Weight] = {}
    size = 0
    for file in weights:
        header = read_weights(file)
        tensors |= header.tensors
        size += header.file_size
    layers = number_of(config, "num_hidden_layers") or 0
    if layers > len(tensors):
        raise _bad(path, f"its config.json states {layers} layers, its weights have {len(tensors)} tensors")
    settings = config.get("quantization")
    return ModelDirectory(
        path=path,
        config=config,
        weights=weights,
        quantisation=_quantisation(tensors, settings),
        parameters=sum(_elements(name, tensors, settings) for name in tensors),
        size=size,
    )


def read_config(path: Path) -> dict[str, Any]:
    """The ``config.json`` of a directory; raises :class:`ModelInvalid` where it is not a JSON object."""
    file = path / CONFIG
    try:
        data = read_bounded(file, MAX_CONFIG)
    except ModelNotFound:
        raise _bad(path, f"it has no {CONFIG}") from None
    try:
        # Not msgspec: the configurations of real models contain the word Infinity.
        config = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ModelInvalid(f"{file} is not valid JSON: {error}", REMEDY) from None
    if not isinstance(config, dict):
        raise ModelInvalid(f"{file} does not contain a JSON object", REMEDY)
    return config


def number_of(config: dict[str, Any], key: str) -> int | None:
    """A positive number of a configuration or of its ``text_config``; None if there is none."""
    for part in (config, config.get("text_config")):
        value = part.get(key) if isinstance(part, dict) else None
        if type(value) is int and 0 < value <= MAX_NUMBER:
            return value
    return None


def _weight_files(path: Path) -> tuple[Path, ...]:
    """The weight files that mlx-lm loads and those that the index names; without any, every weight file."""
    try:
        names = {name for name in os.listdir(path) if name.endswith(".safetensors")}
    except OSError as error:
        raise unreadable(path, error) from None
    if not names:
        raise _bad(path, "it has no *.safetensors file")
    # mlx-lm loads files of this name whether or not the index has them: all are checked.
    loaded = {name for name in names if name.startswith("model")} | _indexed(path)
    return tuple(path / name for name in sorted(loaded or names))


def _indexed(path: Path) -> set[str]:
    """The files that the index of split weights names, if there is one; raises where one is missing."""
    index = path / INDEX
    if not os.path.lexists(index):
        return set()
    names = set(decode_json(read_bounded(index, MAX_INDEX), _Index, index).weight_map.values())
    for name in sorted(names):
        if not name.endswith(".safetensors") or "/" in name or "\\" in name:
            raise _bad(path, f"{INDEX} names {name[:200]!r}, which is not a safetensors file beside it")
        if not os.path.exists(path / name):
            raise _bad(path, f"{name[:200]!r}, which {INDEX} names, is missing")
    return names


def _quantisation(tensors: dict[str, Weight], settings: object) -> str:
    """The bits of a quantised model, or the type most weights have."""
    bits = _bits(settings)
    if bits:
        return f"{bits}bit"
    weights: dict[str, int] = {}
    for tensor in tensors.values():
        weights[tensor.type] = weights.get(tensor.type, 0) + tensor.elements
    return max(weights, key=lambda kind: weights[kind]) if weights else "unknown"


def _bits(settings: object) -> int | None:
    """The bits of a weight by (a part of) the ``quantization`` of a configuration; None without any."""
    bits = settings.get("bits") if isinstance(settings, dict) else None
    return bits if type(bits) is int and 0 < bits <= 32 else None


def _elements(name: str, tensors: dict[str, Weight], settings: object) -> int:
    """The number of weights in a tensor: several in each U32 of a quantised one, none in its scales."""
    module, _, role = name.rpartition(".")
    packed = tensors.get(f"{module}.weight")
    own = settings.get(module) if isinstance(settings, dict) else None
    bits = _bits(own) or _bits(settings)
    if not bits or packed is None or packed.type != "U32" or f"{module}.scales" not in tensors:
        return tensors[name].elements
    if role in ("scales", "biases"):
        return 0
    return packed.elements * 32 // bits if role == "weight" else tensors[name].elements


def _bad(path: Path, what: str) -> ModelInvalid:
    return ModelInvalid(f"{path} is not a usable model directory: {what}", REMEDY)
