"""A home with the stores of five programs in it, and more than thirty models: real headers, the bundled
vocabulary, small random weights, several broken on purpose."""

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

from localspec.models.bundled import BUNDLED_TARGET, bundled_model
from localspec.models.gguf import _Reader
from tests.models import directories, ggufs

WIDTH = 32
VOCABULARY = 8192
"""tokens of the bundled pair"""
TYPES = {"F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34)}
"""ggml's id, weights in a block, bytes of a block"""
MODEL_DIR = "models"
"""of the home: what goes into ``model_dirs``"""
HUB = Path(".cache/huggingface/hub")
FLAT = Path(".cache/llama.cpp")
LM_STUDIO = Path(".lmstudio/models")
OLLAMA = Path(".ollama/models")


class Toy(NamedTuple):
    """A model to write: its header and its size."""

    name: str
    type: str = "Q4_0"
    layers: int = 1
    architecture: str = "llama"
    values: tuple[bytes, ...] = ()


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
        return ggufs.gguf([*_values(toy), *tokenizer(), *toy.values], infos, data)

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
            rest = [*_values(toy), *tokenizer(), *toy.values] if number == 0 else []
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
    epsilon = f"{toy.architecture}.attention.layer_norm_rms_epsilon"
    return [
        ggufs.string("general.architecture", toy.architecture),
        ggufs.string("general.name", toy.name),
        *(ggufs.uint32(f"{toy.architecture}.{key}", number) for key, number in numbers.items()),
        ggufs.value(epsilon, ggufs.FLOAT32, struct.pack("<f", 1e-6)),
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


def mlx_files(config: dict[str, object] | None = None) -> dict[str, bytes]:
    """Return the files of a small MLX directory."""
    tokenizer = directories.tokenizer({"a": 0, "b": 1, "c": 2})
    return {
        "config.json": json.dumps({**directories.CONFIG, **(config or {})}).encode(),
        "model.safetensors": directories.SMALL,
        "tokenizer.json": json.dumps(tokenizer).encode(),
    }


def write_home(root: Path) -> Home:
    """More than thirty models in five stores and a directory of one's own."""
    home = Home(root)
    _write_hub(home)
    _write_programs(home)
    _write_directory(home)
    _write_broken(home)
    return home


def _write_hub(home: Home) -> None:
    make = home.writer.content
    for size, layers in (("0.5B", 1), ("1.5B", 2), ("7B", 4)):
        name = f"Qwen2.5-Coder-{size}-Instruct"
        file = f"{name.lower()}-q4_0.gguf"
        home.hub(f"Qwen/{name}-GGUF", {file: make(Toy(name, layers=layers))})
    name = "Qwen2.5-14B-Instruct"
    parts = home.writer.split(Toy(name, layers=6), 3)
    files = {f"{name.lower()}-q4_0-{i:05}-of-00003.gguf": part for i, part in enumerate(parts, 1)}
    home.hub(f"Qwen/{name}-GGUF", dict(files))
    name = "Llama-3.2-3B-Instruct"
    quantised = {f"{name}-{type}.gguf": make(Toy(name, type, 2)) for type in ("Q4_0", "Q8_0")}
    home.hub(f"bartowski/{name}-GGUF", dict(quantised))
    for name in ("Qwen2.5-0.5B-Instruct-4bit", "Llama-3.2-1B-Instruct-4bit", "Phi-3.5-mini-instruct-4bit"):
        home.hub(f"mlx-community/{name}", dict(mlx_files({"quantization": {"bits": 4, "group_size": 64}})))
    home.hub("org/Encoder-110M", dict(mlx_files({"architectures": ["BertModel"]})))


def _write_programs(home: Home) -> None:
    make = home.writer.content
    flat = {
        "ggml-org_models_tinyllamas_stories15M.gguf": Toy("stories15M"),
        "bartowski_gemma-2-2b-it-GGUF_gemma-2-2b-it-Q8_0.gguf": Toy("gemma-2-2b-it", "Q8_0"),
    }
    for name, toy in flat.items():
        home.file(FLAT / name, make(toy))
    for size, layers in (("0.5b", 1), ("3b", 2), ("14b", 5)):
        home.ollama("qwen2.5-coder", size, make(Toy(f"Qwen2.5 Coder {size}", layers=layers)))
    shared = make(Toy("Llama 3.1 8B", layers=4))
    home.ollama("llama3.1", "8b", shared)
    home.ollama("llama3.1", "latest", shared)
    seven = "models--Qwen--Qwen2.5-Coder-7B-Instruct-GGUF"
    (blob,) = (home.root / HUB / seven / "blobs").iterdir()
    home.ollama("qwen2.5-coder", "7b", blob.read_bytes())
    home.ollama("nomic-embed-text", "latest", make(Toy("nomic-embed-text-v1.5", architecture="nomic-bert")))
    for publisher, name, toy in (
        ("lmstudio-community", "Qwen2.5-7B-Instruct-GGUF", Toy("Qwen2.5-7B-Instruct", type="Q8_0", layers=4)),
        ("lmstudio-community", "Qwen2.5-0.5B-Instruct-GGUF", Toy("Qwen2.5-0.5B-Instruct", type="Q8_0")),
        ("TheDrummer", "Phi-3-mini-4k-instruct-GGUF", Toy("Phi-3-mini-4k-instruct", layers=2)),
    ):
        file = f"{name.removesuffix('-GGUF')}-{toy.type}.gguf"
        home.file(LM_STUDIO / publisher / name / file, make(toy))
    home.file(LM_STUDIO / "lmstudio-community" / "llama-3.1-8b" / "Meta-Llama-3.1-8B-Q4_0.gguf", shared)
    for name, content in mlx_files().items():
        home.file(LM_STUDIO / "mlx-community" / "gemma-3-1b-it-8bit" / name, content)


def _write_directory(home: Home) -> None:
    make = home.writer.content
    for name, toy in (
        ("aquila-7b.Q4_0.gguf", Toy("aquila-7b", layers=3)),
        ("deep/gpt2-124M.F16.gguf", Toy("gpt2", "F16")),
        ("mmproj-model-f16.gguf", Toy("projector", architecture="clip")),
        ("lora.gguf", Toy("lora", values=(ggufs.string("general.type", "adapter"),))),
    ):
        home.file(Path(MODEL_DIR) / name, make(toy))
    home.file(Path(MODEL_DIR) / "vocabulary.gguf", ggufs.gguf(tokenizer()))
    twin = home.root / HUB / "models--Qwen--Qwen2.5-Coder-7B-Instruct-GGUF" / "snapshots" / ("a" * 40)
    link = home.root / MODEL_DIR / "my-coder.gguf"
    link.symlink_to(twin / "qwen2.5-coder-7b-instruct-q4_0.gguf")


def _write_broken(home: Home) -> None:
    good = home.writer.content(Toy("Broken-7B"))
    home.hub("org/Missing-7B-GGUF", {"missing-7b-q4_0.gguf": None})
    parts = home.writer.split(Toy("Split-9B", layers=2), 3)
    for number in (1, 3):
        home.file(Path(MODEL_DIR) / f"split-9b-{number:05}-of-00003.gguf", parts[number - 1])
    home.file(Path(MODEL_DIR) / "truncated.gguf", good[:-100_000])
    home.file(Path(MODEL_DIR) / "magic.gguf", b"GGML" + good[4:1000])
    home.file(Path(MODEL_DIR) / "empty.gguf", b"")
    home.file(Path(MODEL_DIR) / "hostile.gguf", ggufs.start(2**60, 2**60))
    home.ollama("missing", "7b", None)
    home.manifest("escaping", "7b", {"model": "sha256:../../../../etc/passwd"})
    home.file(OLLAMA / "manifests" / "registry.ollama.ai" / "library" / "broken" / "7b", b"{")
    home.manifest("cloudy", "cloud", {})
