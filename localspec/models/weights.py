"""A bounded reader of safetensors headers: every length and offset is checked against the file before
native code sees it.

The format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from localspec.errors import ModelInvalid
from localspec.models.bounded import REMEDY, decode_json, opened

MAX_HEADER = 100 * 1024 * 1024
MAX_NAME = 1024
MAX_DIMENSIONS = 8

# Bits of one element.
TYPES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Weight(NamedTuple):
    """One tensor of a safetensors file: the type of its elements, and their number."""

    type: str
    elements: int


class WeightsHeader(NamedTuple):
    """The tensors of a safetensors file by name, and the file's size in bytes."""

    tensors: dict[str, Weight]
    file_size: int


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[Number]
    data_offsets: tuple[Number, Number]


def read_weights(path: Path) -> WeightsHeader:
    """Read and check a safetensors header.

    Raises :class:`ModelNotFound` for a file that is not there, :class:`ModelInvalid` for one that
    cannot be read, is not a safetensors file, is truncated, or whose lengths and offsets do not fit its size.
    """
    with opened(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise _bad(path, "its header is longer than the file")
        if length > MAX_HEADER:
            raise _bad(path, f"its header is longer than {MAX_HEADER} bytes")
        data = file.read(length)
    entries = decode_json(data, dict[str, msgspec.Raw], path)
    entries.pop("__metadata__", None)
    room = size - 8 - length
    return WeightsHeader({name: _weight(path, name, raw, room) for name, raw in entries.items()}, size)


def _weight(path: Path, name: str, raw: msgspec.Raw, room: int) -> Weight:
    """One entry of the header, which lies in the ``room`` bytes after it."""
    if len(name) > MAX_NAME:
        raise _bad(path, f"a tensor's name has {len(name)} characters; {MAX_NAME} are the most")
    entry = decode_json(bytes(raw), _Entry, path)
    if entry.dtype not in TYPES:
        raise _bad(path, f"tensor {name!r} has the unknown type {entry.dtype[:16]!r}")
    if len(entry.shape) > MAX_DIMENSIONS:
        raise _bad(path, f"tensor {name!r} has {len(entry.shape)} dimensions; {MAX_DIMENSIONS} are the most")
    begin, end = entry.data_offsets
    elements = math.prod(entry.shape)
    if elements * TYPES[entry.dtype] != (end - begin) * 8:
        raise _bad(path, f"tensor {name!r} of shape {entry.shape} has {end - begin} bytes")
    if end > room:
        raise _bad(path, f"it is truncated: tensor {name!r} ends {end - room} bytes past its end")
    return Weight(entry.dtype, elements)


def _bad(path: Path, what: str) -> ModelInvalid:
    return ModelInvalid(f"{path} is not a usable safetensors file: {what}", REMEDY)
