"""A bounded reader of GGUF headers: every count, length and offset is checked against the file
before native code sees it.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from localspec.errors import ModelInvalid, ModelNotFound

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 1_000_000
MAX_ARRAY = 16_000_000
MAX_KEY = 65_535
MAX_DIMENSIONS = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

# ggml type id: (name, elements per block, bytes per block). A type not listed has its offset checked only.
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    26: ("I32", 1, 4),
    30: ("BF16", 1, 2),
    39: ("MXFP4", 32, 17),
}

KEPT_ARRAYS = frozenset({"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"})


class Tensor(NamedTuple):
    """One tensor's place: ``offset`` counts from the start of the data section, in bytes."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata (arrays only where kept) and the tensors of a GGUF file."""

    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    file_size: int

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", "unknown"))

    @property
    def parameters(self) -> int:
        """Weights in all tensors."""
        return sum(_elements(tensor.shape) for tensor in self.tensors)

    @property
    def quantisation(self) -> str:
        """The type most weights have."""
        weights: dict[int, int] = {}
        for tensor in self.tensors:
            weights[tensor.type] = weights.get(tensor.type, 0) + _elements(tensor.shape)
        if not weights:
            return "unknown"
        most = max(weights, key=lambda kind: weights[kind])
        return TENSOR_TYPES[most][0] if most in TENSOR_TYPES else f"type {most}"

    def of_architecture(self, key: str) -> Any:
        """``general.architecture``'s own value, such as ``context_length``; None if not there."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_header(path: Path) -> GgufHeader:
    """Read and check a GGUF header.

    Raises :class:`ModelNotFound` for a file that is not there, :class:`ModelInvalid` for one that
    cannot be read, is no GGUF, is truncated, or whose counts and offsets do not fit its size.
    """
    try:
        with path.open("rb") as file:
            if path.is_dir() or not file.read(4):
                raise ModelInvalid(f"{path} is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _Reader(view, path).header()
    except FileNotFoundError:
        raise ModelNotFound(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ModelInvalid(f"{path} is a directory, not a GGUF file") from None
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{path} cannot be read: {error}") from None


class _Reader:
    def __init__(self, view: mmap.mmap, path: Path) -> None:
        self.view, self.path, self.size, self.at = view, path, len(view), 0

    def bad(self, what: str) -> ModelInvalid:
        return ModelInvalid(f"{self.path} is not a usable GGUF file: {what}")

    def header(self) -> GgufHeader:
        if self.view[:4] != MAGIC:
            raise self.bad("it does not start with the letters GGUF")
        self.at = 4
        version = self.scalar("I")
        if version not in VERSIONS:
            raise self.bad(f"version {version}; versions 2 and 3 are known")
        n_tensors, n_values = self.scalar("Q"), self.scalar("Q")
        if max(n_tensors, n_values) > MAX_ENTRIES:
            raise self.bad(f"it claims {n_tensors} tensors and {n_values} values")
        metadata: dict[str, Any] = {}
        for _ in range(n_values):
            key = self.string(MAX_KEY)
            metadata[key] = self.value(self.scalar("I"), keep=key in KEPT_ARRAYS)
        tensors = tuple(self.tensor() for _ in range(n_tensors))
        self.check_data(tensors, metadata.get("general.alignment", 32))
        return GgufHeader(metadata, tensors, self.size)

    def take(self, n: int) -> int:
        """Step over ``n`` bytes; returns where they start."""
        start = self.at
        if n > self.size - start:
            raise self.bad("it is truncated inside its header")
        self.at = start + n
        return start

    def scalar(self, code: str) -> Any:
        form = struct.Struct("<" + code)
        return form.unpack_from(self.view, self.take(form.size))[0]

    def string(self, limit: int) -> str:
        n = self.scalar("Q")
        if n > limit:
            raise self.bad(f"a text of {n} bytes in its header")
        start = self.take(n)
        return self.view[start : start + n].decode("utf-8", "replace")

    def value(self, kind: int, *, keep: bool) -> Any:
        if kind == _STRING:
            return self.string(self.size)
        if kind == _ARRAY:
            return self.array(keep=keep)
        if kind not in _SCALARS:
            raise self.bad(f"a value of unknown type {kind}")
        return self.scalar(_SCALARS[kind])

    def array(self, *, keep: bool) -> tuple[Any, ...] | None:
        kind, n = self.scalar("I"), self.scalar("Q")
        if n > MAX_ARRAY:
            raise self.bad(f"an array of {n} items in its header")
        if kind == _STRING:
            if keep:
                return tuple(self.string(self.size) for _ in range(n))
            for _ in range(n):
                self.take(self.scalar("Q"))
            return None
        if kind not in _SCALARS:
            raise self.bad(f"an array of unknown type {kind}")
        form = struct.Struct(f"<{n}{_SCALARS[kind]}")
        start = self.take(form.size)
        return form.unpack_from(self.view, start) if keep else None

    def tensor(self) -> Tensor:
        name = self.string(MAX_KEY)
        dimensions = self.scalar("I")
        if dimensions > MAX_DIMENSIONS:
            raise self.bad(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self.scalar("Q") for _ in range(dimensions))
        return Tensor(name, shape, self.scalar("I"), self.scalar("Q"))

    def check_data(self, tensors: tuple[Tensor, ...], alignment: Any) -> None:
        """Every tensor lies inside the file."""
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self.bad(f"alignment {alignment!r}")
        data = -(-self.at // alignment) * alignment
        for tensor in tensors:
            _, block, width = TENSOR_TYPES.get(tensor.type, ("", 1, 0))
            end = data + tensor.offset + _elements(tensor.shape) // block * width
            if end > self.size:
                raise self.bad(
                    f"it is truncated: tensor {tensor.name!r} ends {end - self.size} bytes past its end"
                )


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product
