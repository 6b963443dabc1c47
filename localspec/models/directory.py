"""Model directories as MLX reads them: ``config.json``, weights in safetensors files, ``tokenizer.json``.

Every length and offset of a safetensors header is checked against its file before native code sees it. The
format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from localspec.errors import ModelInvalid, ModelNotFound
from localspec.models.bounded import REMEDY, decode_json, opened, read_bounded, shown, unreadable

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_CONFIG = 16 * 1024 * 1024
MAX_INDEX = 100 * 1024 * 1024
"""bytes of the index of split weights; that of the largest models has 9 MB"""
MAX_WEIGHTS_HEADER = 100 * 1024 * 1024
"""bytes of a header of weights"""
MAX_NUMBER = 2**63 - 1
"""the largest integer on the wire, and more than any model has"""
BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""bits of one element, by type"""

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


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

    @property
    def n_tokens(self) -> int:
        """Tokens in a row of logits; 0 if its configuration does not say."""
        return number_of(self.config, "vocab_size") or 0


class Weight(NamedTuple):
    """One tensor of a safetensors file: the type of its elements, and their number."""

    type: str
    elements: int


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[Number]
    data_offsets: tuple[Number, Number]


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
        found, length = read_weights(file)
        tensors |= found
        size += length
    layers = number_of(config, "num_hidden_layers") or 0
    if layers > len(tensors):
        raise _bad(path, f"its config.json states {layers} layers, its weights have {len(tensors)} tensors")
    bits = _bits(config.get("quantization"))
    elements: Counter[str] = Counter()
    parameters = 0
    for name, tensor in tensors.items():
        elements[tensor.type] += tensor.elements
        if bits and tensor.type == "U32":  # several weights in each
            parameters += tensor.elements * 32 // bits
        elif not (bits and name.endswith((".scales", ".biases"))):
            parameters += tensor.elements
    most = max(elements, key=lambda kind: elements[kind], default="unknown")
    return ModelDirectory(
        path=path,
        config=config,
        weights=weights,
        quantisation=f"{bits}bit" if bits else most,
        parameters=parameters,
        size=size,
    )


def read_config(path: Path) -> dict[str, Any]:
    """The ``config.json`` of a directory; raises :class:`ModelInvalid` where it is not a JSON object."""
    file = path / CONFIG
    try:
        # Not msgspec: the configurations of real models contain the word Infinity.
        config = json.loads(read_bounded(file, MAX_CONFIG).decode())
    except ModelNotFound:
        raise _bad(path, f"it has no {CONFIG}") from None
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
    """The weight files that mlx-lm loads; without any, every weight file."""
    try:
        names = {name for name in os.listdir(path) if name.endswith(".safetensors")}
    except OSError as error:
        raise unreadable(path, error) from None
    if not names:
        raise _bad(path, "it has no *.safetensors file")
    if os.path.lexists(index := path / INDEX):
        indexed = decode_json(read_bounded(index, MAX_INDEX), _Index, index).weight_map.values()
        if missing := min(set(indexed) - names, default=""):
            raise _bad(path, f"{shown(missing)}, which {INDEX} names, is missing")
    loaded = {name for name in names if name.startswith("model")}
    return tuple(path / name for name in sorted(loaded or names))


def read_weights(path: Path) -> tuple[dict[str, Weight], int]:
    """Read and check a safetensors header: its tensors by name, and the file's size in bytes.

    Raises :class:`ModelNotFound` for a file that is not there, :class:`ModelInvalid` for one that
    cannot be read, is not a safetensors file, is truncated, or whose lengths and offsets do not fit its size.
    """
    with opened(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise _damaged(path, "its header is longer than the file")
        if length > MAX_WEIGHTS_HEADER:
            raise _damaged(path, f"its header is longer than {MAX_WEIGHTS_HEADER} bytes")
        data = file.read(length)
    entries = decode_json(data, dict[str, msgspec.Raw], path)
    entries.pop("__metadata__", None)
    return {name: _weight(path, name, raw, size - 8 - length) for name, raw in entries.items()}, size


def _weight(path: Path, name: str, raw: msgspec.Raw, room: int) -> Weight:
    """One entry of the header, which lies in the ``room`` bytes after it."""
    entry = decode_json(bytes(raw), _Entry, path)
    name, (begin, end) = shown(name), entry.data_offsets
    if entry.dtype not in BITS:
        raise _damaged(path, f"tensor {name} has the unknown type {entry.dtype[:16]!r}")
    elements = math.prod(entry.shape)
    if elements * BITS[entry.dtype] != (end - begin) * 8:
        raise _damaged(path, f"tensor {name} of shape {entry.shape[:8]} has {end - begin} bytes")
    if end > room:
        raise _damaged(path, f"it is truncated: tensor {name} ends {end - room} bytes past its end")
    return Weight(entry.dtype, elements)


def _bits(settings: object) -> int | None:
    """The bits of a weight by the ``quantization`` of a configuration; None without any."""
    bits = settings.get("bits") if isinstance(settings, dict) else None
    return bits if type(bits) is int and 0 < bits <= 32 else None


def _bad(path: Path, what: str) -> ModelInvalid:
    return ModelInvalid(f"{path} is not a usable model directory: {what}", REMEDY)


def _damaged(path: Path, what: str) -> ModelInvalid:
    return ModelInvalid(f"{path} is not a usable safetensors file: {what}", REMEDY)
