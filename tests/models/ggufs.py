"""GGUF files piece by piece, well-formed or not."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model

DRAFT = bundled_model(BUNDLED_DRAFT)
TARGET = bundled_model(BUNDLED_TARGET)

UINT8, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 5, 6, 7, 8, 9, 10
F32, F16, Q4_K, UNKNOWN_TYPE = 0, 1, 12, 999


def text(content: str) -> bytes:
    data = content.encode()
    return struct.pack("<Q", len(data)) + data


def value(key: str, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def string(key: str, content: str) -> bytes:
    return value(key, STRING, text(content))


def uint32(key: str, number: int) -> bytes:
    return value(key, UINT32, struct.pack("<I", number))


def array(key: str, kind: int, length: int, payload: bytes) -> bytes:
    return value(key, ARRAY, struct.pack("<IQ", kind, length) + payload)


def strings(key: str, items: Sequence[str]) -> bytes:
    return array(key, STRING, len(items), b"".join(map(text, items)))


def ints(key: str, items: Sequence[int]) -> bytes:
    return array(key, INT32, len(items), struct.pack(f"<{len(items)}i", *items))


def tensor(name: str, shape: Sequence[int], kind: int = F32, offset: int = 0) -> bytes:
    form = f"<I{len(shape)}QIQ"
    return text(name) + struct.pack(form, len(shape), *shape, kind, offset)


def start(n_tensors: int, n_values: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_values)


def gguf(values: Sequence[bytes] = (), tensors: Sequence[bytes] = (), data: bytes = b"") -> bytes:
    """A whole file; ``data`` begins at the next multiple of 32."""
    header = start(len(tensors), len(values)) + b"".join(values) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + data


def vocabulary(tokens: Sequence[str], types: Sequence[int] | None = None, model: str = "gpt2") -> list[bytes]:
    """The values that describe a tokenizer."""
    values = [string("tokenizer.ggml.model", model), strings("tokenizer.ggml.tokens", tokens)]
    return values if types is None else [*values, ints("tokenizer.ggml.token_type", types)]


def small() -> bytes:
    """A well-formed file with a value of every shape and one tensor."""
    values = [
        string("general.architecture", "toy"),
        uint32("toy.context_length", 64),
        value("toy.scale", FLOAT32, struct.pack("<f", 0.5)),
        value("toy.causal", BOOL, b"\1"),
        *vocabulary(["a", "b", "Ġc"], [1, 1, 1]),
        strings("tokenizer.ggml.merges", ["a b", "b c"]),
        ints("toy.layers", [1, 2, 3]),
    ]
    return gguf(values, [tensor("weight", (4, 2))], data=b"\0" * 32)


def write(folder: Path, content: bytes, name: str = "model.gguf") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
