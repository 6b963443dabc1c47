"""Model directories piece by piece, well-formed or not."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIG = {"model_type": "toy", "max_position_embeddings": 64}
BYTES_OF = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4}

Shapes = Mapping[str, tuple[str, Sequence[int]]]


def entry(kind: str, shape: Sequence[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


def safetensors(header: object, data: bytes = b"") -> bytes:
    """A weights file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def weights(shapes: Shapes) -> bytes:
    """A whole weights file: of every tensor its type and shape, all zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name, (kind, shape) in shapes.items():
        begin = end
        end += BYTES_OF[kind]
        for side in shape:
            end += (end - begin) * (side - 1)
        header[name] = entry(kind, shape, begin, end)
    return safetensors(header, b"\0" * end)


SMALL = weights({"weight": ("F16", (4, 2)), "norm": ("F32", (2,))})


def added(token: int, content: str, *, special: bool = True) -> dict[str, Any]:
    return {"id": token, "content": content, "special": special, "normalized": False}


def tokenizer(
    vocab: Mapping[str, int] | Sequence[tuple[str, float]],
    tokens: Sequence[Mapping[str, Any]] = (),
    *,
    byte_level: bool = True,
) -> dict[str, Any]:
    """A ``tokenizer.json`` as the tokenizers package writes it: a table is of BPE, a list of Unigram."""
    kind = "BPE" if isinstance(vocab, Mapping) else "Unigram"
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    spaces = {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return {
        "version": "1.0",
        "added_tokens": list(tokens),
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True} if byte_level else None,
        "decoder": {"type": "ByteLevel"} if byte_level else spaces,
        "model": {"type": kind, "byte_fallback": not byte_level, "vocab": vocab, "merges": []},
    }


def write(folder: Path, files: Mapping[str, object] | None = None, name: str = "toy") -> Path:
    """A model directory: a small whole one, but for ``files``, whose None is a file left out."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    whole: dict[str, object] = {
        "config.json": CONFIG,
        "model.safetensors": SMALL,
        "tokenizer.json": tokenizer({"a": 0, "b": 1, "Ġc": 2}, [added(3, "<|end|>")]),
        "tokenizer_config.json": {"model_max_length": 64},
    }
    for file, content in (whole | dict(files or {})).items():
        if content is not None:
            (path / file).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path
