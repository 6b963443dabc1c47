"""A home with the stores of other programs in it, and models for them: real headers, the bundled vocabulary,
small random weights."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.models.gguf import _Reader
from tests.models import ggufs

WIDTH = 32
VOCABULARY = 8192
"""tokens of the bundled pair"""
TYPES = {"F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34)}
"""ggml's id, weights in a block, bytes of a block"""
HUB = Path(".cache/huggingface/hub")
FLAT = Path(".cache/llama.cpp")
LM_STUDIO = Path(".lmstudio/models")
OLLAMA = Path(".ollama/models")


class Toy(NamedTuple):
    """A model to write: its header and its size."""

    name: str
    type: str = "Q4_0"
    layers: int = 1


@cache
def tokenizer() -> list[bytes]:
    """The values of the bundled tokenizer."""
    path, values = bundled_model(BUNDLED_TARGET), list[bytes]()
    with path.open("rb") as file:
        reader = _Reader(file, path, path.stat().st_size, ())
        reader.take(16)
        for _ in range(reader.scalar("Q")):
            start = reader.at
            metadata: dict[str, object] = {}
            reader.entry(metadata)
            if next(iter(metadata)).startswith("tokenizer."):
                values.append(bytes(reader.data[start : reader.at]))
    return values


class Writer:
    """Writes models, a tensor's weights alike in all."""

    def content(self, toy: Toy) -> bytes:
        """A whole GGUF file that llama.cpp loads."""
        infos, data = self._tensors(_shapes(toy), toy.type)
        return ggufs.gguf([*_values(toy), *tokenizer()], infos, data)

    def split(self, toy: Toy, n_parts: int) -> list[bytes]:
        """The same in parts, the tensors dealt out; the first has all values."""
        shapes = list(_shapes(toy).items())
        files = []
        for number in range(n_parts):
            infos, data = self._tensors(dict(shapes[number::n_parts]), toy.type)
            values = [
                ggufs.value("split.no", 2, struct.pack("<H", number)),
                ggufs.value("split.count", 2, struct.pack("<H", n_parts)),
                ggufs.value("split.tensors.count", ggufs.INT32, struct.pack("<i", len(shapes))),
            ]
            rest = [*_values(toy), *tokenizer()] if number == 0 else []
            files.append(ggufs.gguf([*values, *rest], infos, data))
        return files

    def _tensors(self, shapes: dict[str, tuple[int, ...]], type: str) -> tuple[list[bytes], bytes]:
        infos, pieces, offset = list[bytes](), list[bytes](), 0
        for name, shape in shapes.items():
            norm = len(shape) == 1
            infos.append(ggufs.tensor(name, shape, ggufs.F32 if norm else TYPES[type][0], offset))
            piece = np.ones(shape[0], "<f4").tobytes() if norm else _weights(name, shape, type)
            pieces.append(piece + b"\0" * (-len(piece) % 32))
            offset += len(pieces[-1])
        return infos, b"".join(pieces)


def _weights(name: str, shape: tuple[int, ...], type: str) -> bytes:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    _, block, width = TYPES[type]
    n_blocks = int(np.prod(shape)) // block
    if type == "F16":
        return random.normal(0, 0.02, n_blocks).astype("<f2").tobytes()
    blocks = random.integers(0, 256, (n_blocks, width), dtype=np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    return blocks.tobytes()


def _values(toy: Toy) -> list[bytes]:
    numbers = {
        "context_length": 2048,
        "embedding_length": WIDTH,
        "block_count": toy.layers,
        "feed_forward_length": 2 * WIDTH,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "rope.dimension_count": WIDTH // 2,
    }
    return [
        ggufs.string("general.architecture", "llama"),
        ggufs.string("general.name", toy.name),
        *(ggufs.uint32(f"llama.{key}", number) for key, number in numbers.items()),
        ggufs.value("llama.attention.layer_norm_rms_epsilon", ggufs.FLOAT32, struct.pack("<f", 1e-6)),
    ]


def _shapes(toy: Toy) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (WIDTH, VOCABULARY),
        "output_norm.weight": (WIDTH,),
    }
    for layer in range(toy.layers):
        of_layer = {
            "attn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH, WIDTH // 2),
            "attn_v": (WIDTH, WIDTH // 2),
            "attn_output": (WIDTH, WIDTH),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (WIDTH, 2 * WIDTH),
            "ffn_up": (WIDTH, 2 * WIDTH),
            "ffn_down": (2 * WIDTH, WIDTH),
        }
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
    return shapes


class Home:
    """The stores, and what is put into them; every method returns the path of what it wrote."""

    def __init__(self, root: Path) -> None:
        self.root, self.writer = root, Writer()

    def file(self, path: str | Path, content: bytes) -> Path:
        """Any file of the home."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return target

    def hub(self, repository: str, files: dict[str, bytes | None], revision: str = "a" * 40) -> Path:
        """A repository in the hub's cache; a file without content is a link to a blob that is missing."""
        folder = HUB / f"models--{repository.replace('/', '--')}"
        self.file(folder / "refs" / "main", revision.encode())
        snapshot = self.root / folder / "snapshots" / revision
        for name, content in files.items():
            digest = hashlib.sha256(name.encode() if content is None else content).hexdigest()
            if content is not None:
                self.file(folder / "blobs" / digest, content)
            link = snapshot / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(self.root / folder / "blobs" / digest, link.parent))
        return snapshot

    def ollama(self, name: str, tag: str, content: bytes | None, **layers: str) -> Path:
        """A model of Ollama's library, or of the host that ``name`` begins with; without content its blob is
        missing. ``layers`` are more, by kind."""
        digest = hashlib.sha256(content or name.encode()).hexdigest()
        if content is not None:
            self.file(OLLAMA / "blobs" / f"sha256-{digest}", content)
        return self.manifest(name, tag, {"model": f"sha256:{digest}", **layers})

    def manifest(self, name: str, tag: str, layers: dict[str, str]) -> Path:
        """A manifest of Ollama's, with any digests."""
        kind = "application/vnd.ollama.image."
        said = [{"mediaType": kind + layer, "digest": digest, "size": 1} for layer, digest in layers.items()]
        library = Path() if "/" in name else Path("registry.ollama.ai", "library")
        path = OLLAMA / "manifests" / library / name / tag
        return self.file(path, json.dumps({"schemaVersion": 2, "config": {}, "layers": said}).encode())
