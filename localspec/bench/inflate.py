"""Function-preserving inflation: a small model with the cost of a large one.

A tiny model is too cheap to show the cost of verifying a draft. Inflated to a real model's shape it
computes the same function, so that text and acceptance stay what they are, at the real price:

- the width is padded with zeros. RMSNorm divides by the root of the mean over D channels, of which
  d are real, so norm weights are scaled by √(d/D), and its epsilon by d/D;
- heads and the feed-forward are padded with zeros; a real head keeps its KV head (grouped attention);
- further layers have random weights and output projections of zeros: they add nothing.

Zeros are multiplied like any other numbers. The idea of growing a network without changing its
function: Net2Net, https://arxiv.org/abs/1511.05641.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec import home
from localspec.errors import INSTALL_BENCH, BackendUnavailable, InvalidOptions, LocalspecError, ModelInvalid
from localspec.models.gguf import read_header

Weights = NDArray[np.float32]
Progress = Callable[[float], None]
"""fraction 0 to 1"""

ARCHITECTURE = "qwen3"
RECIPE = 1
"""part of a cached file's name: raise it when a shape's weights change"""
BLOCK = 32
"""weights in a block of the quantisations below; every row is a whole number of blocks"""
QUANTISATIONS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q5_0": 8, "Q8_0": 7, "BF16": 32}
"""quantisations that gguf can write, with ``general.file_type`` of each (llama.h, enum llama_ftype)"""
NOISE = 0.02
"""standard deviation of random weights"""
LAYER_TENSORS = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)
WHOLE_TENSORS = ("token_embd.weight", "output_norm.weight")


class Shape(NamedTuple):
    """The size of a Qwen3 model with tied embeddings; heads are as wide as the source's."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int

    @property
    def label(self) -> str:
        """The shape in a file's name: ``896x24-14-2-4864``."""
        return f"{self.width}x{self.layers}-{self.heads}-{self.kv_heads}-{self.feed_forward}"

    def parameters(self, vocabulary: int, head_size: int = 64) -> int:
        """Weights in all matrices."""
        attention = 2 * (self.heads + self.kv_heads) * head_size * self.width
        feed_forward = 3 * self.width * self.feed_forward
        return self.layers * (attention + feed_forward) + vocabulary * self.width


TARGET_SHAPE = Shape(width=896, layers=24, heads=14, kv_heads=2, feed_forward=4864)
"""Qwen2.5-0.5B's, https://huggingface.co/Qwen/Qwen2.5-0.5B/blob/main/config.json"""
DRAFT_RATIOS = (0.1, 0.3)
"""t_draft / t_target that the benchmark reports"""
BUNDLED_VOCABULARY = 8192


def draft_shape(ratio: float) -> Shape:
    """A shape with about ``ratio`` of the target shape's weights, in its proportions.

    Raises :class:`InvalidOptions` for a ratio below 0.02 or above 1.
    """
    if not 0.02 <= ratio <= 1:
        raise InvalidOptions(
            f"the draft's cost ratio {ratio:g} is out of range", "Choose a ratio from 0.02 to 1."
        )
    # Width, feed-forward and depth shrink alike, so that weights shrink with their cube.
    scale = ratio ** (1 / 3)
    width = 128 * max(1, round(TARGET_SHAPE.width * scale / 128))
    feed_forward = 128 * max(1, round(TARGET_SHAPE.feed_forward * scale / 128))
    shape = Shape(width, 1, width // 64, 2, feed_forward)
    wanted = ratio * TARGET_SHAPE.parameters(BUNDLED_VOCABULARY)
    embedding = BUNDLED_VOCABULARY * width
    layer = shape.parameters(BUNDLED_VOCABULARY) - embedding
    return shape._replace(layers=max(2, round((wanted - embedding) / layer)))


def inflated_model(
    source: Path, shape: Shape, quantisation: str = "Q8_0", progress: Progress | None = None
) -> Path:
    """``source`` inflated, from the user's cache or made there; for errors see :func:`inflate`."""
    name = f"{source.stem}-{_fingerprint(source)}-{shape.label}-{quantisation}-r{RECIPE}.gguf"
    target = home.cache_dir() / "bench" / name
    return target if target.exists() else inflate(source, target, shape, quantisation, progress)


def inflate(
    source: Path, target: Path, shape: Shape, quantisation: str = "Q8_0", progress: Progress | None = None
) -> Path:
    """Write ``source`` (a qwen3 GGUF with tied embeddings) inflated to ``shape``; returns ``target``.

    The tokenizer's and all other metadata are copied. The file appears whole or not at all. Raises
    :class:`ModelInvalid` for another architecture, :class:`InvalidOptions` for a shape that the
    source does not fit into or a quantisation that cannot be written, :class:`LocalspecError` when
    the file cannot be written, :class:`BackendUnavailable` without gguf.
    """
    small = Source(source)
    check_shape(small.shape, shape, quantisation)
    form = Form(quantisation, shape.layers, progress)
    write_model(target, metadata_of(small, shape, quantisation), _inflated_parts(small, shape), form)
    return target


class Source:
    """The model that is inflated, as float32."""

    def __init__(self, path: Path) -> None:
        header = read_header(
            path
        )  # bounded, with typed errors: the gguf package reads the file without checks
        if header.architecture != ARCHITECTURE:
            raise ModelInvalid(f"{path} is a {header.architecture} model, not {ARCHITECTURE}")
        gguf = gguf_package()
        self._path, self._reader = path, gguf.GGUFReader(path)
        self._dequantise = gguf.quants.dequantize
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        layers = int(self.value(f"{ARCHITECTURE}.block_count"))
        expected = {f"blk.{i}.{name}.weight" for i in range(layers) for name in LAYER_TENSORS}
        if self._tensors.keys() != expected | {*WHOLE_TENSORS}:
            raise ModelInvalid(f"{path} is not a plain {ARCHITECTURE} model with tied embeddings")
        self.head_size = int(self.value(f"{ARCHITECTURE}.attention.key_length"))
        self.shape = Shape(
            width=int(self.value(f"{ARCHITECTURE}.embedding_length")),
            layers=layers,
            heads=int(self.value(f"{ARCHITECTURE}.attention.head_count")),
            kv_heads=int(self.value(f"{ARCHITECTURE}.attention.head_count_kv")),
            feed_forward=int(self.value(f"{ARCHITECTURE}.feed_forward_length")),
        )

    def value(self, key: str) -> Any:
        """One value of the metadata."""
        field = self._reader.get_field(key)
        if field is None:
            raise ModelInvalid(f"{self._path} has no value for {key}")
        return field.contents()

    def metadata(self) -> dict[str, Value]:
        """All values with their types, without those about the file's own layout."""
        return {
            key: Value(field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
            for key, field in self._reader.fields.items()
            if not key.startswith("GGUF.") and key != "general.architecture"
        }

    def tensor(self, name: str) -> Weights:
        """A tensor, shape (rows, columns) or (channels,)."""
        tensor = self._tensors[name]
        return np.asarray(self._dequantise(tensor.data, tensor.tensor_type), dtype=np.float32)


class Value(NamedTuple):
    """A value of a GGUF's metadata with its type, and its items' type if it is an array."""

    value: Any
    type: Any
    items: Any = None


class Form(NamedTuple):
    """The form of a written model: its quantisation, number of layers, and a callback."""

    quantisation: str
    layers: int
    progress: Progress | None = None


Part = dict[str, Weights]
"""the tensors outside of the layers by full names, or those of one layer by the names in LAYER_TENSORS"""


def gguf_package() -> Any:
    """The gguf package, which only the benchmark's and the development's extras install."""
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        raise BackendUnavailable(f"gguf cannot be imported: {error}", INSTALL_BENCH) from None
    return gguf


def _fingerprint(path: Path) -> str:
    """Eight hex digits of the file's content; raises :class:`ModelNotFound` and :class:`ModelInvalid`."""
    read_header(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:8]


def check_shape(small: Shape, shape: Shape, quantisation: str) -> None:
    """Raise :class:`InvalidOptions` where ``small`` cannot be inflated to ``shape``."""
    if quantisation not in QUANTISATIONS:
        known = ", ".join(QUANTISATIONS)
        raise InvalidOptions(
            f"the quantisation {quantisation!r} cannot be written", f"Choose one of {known}."
        )
    for name, before, after in zip(Shape._fields, small, shape, strict=True):
        if after < before:
            raise InvalidOptions(
                f"{name} {after} is smaller than the source model's {before}",
                f"Give {name} a value of at least {before}.",
            )
    if shape.width % BLOCK or shape.feed_forward % BLOCK:
        raise InvalidOptions(
            f"width {shape.width} or feed-forward {shape.feed_forward} is not a multiple of {BLOCK}",
            f"Give multiples of {BLOCK}.",
        )
    least = small.heads // small.kv_heads
    if shape.heads % shape.kv_heads or shape.heads // shape.kv_heads < least:
        raise InvalidOptions(
            f"{shape.heads} heads cannot be divided among {shape.kv_heads} KV heads: each KV head must serve "
            f"the same number of heads, and at least the source model's {least}",
            f"Give fewer KV heads, or a multiple of {shape.kv_heads} heads that is at least "
            f"{least * shape.kv_heads}.",
        )


def metadata_of(small: Source, shape: Shape, quantisation: str) -> dict[str, Value]:
    """The source's metadata with the new shape."""
    metadata = small.metadata()
    epsilon = f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon"
    changed = {
        f"{ARCHITECTURE}.embedding_length": shape.width,
        f"{ARCHITECTURE}.block_count": shape.layers,
        f"{ARCHITECTURE}.attention.head_count": shape.heads,
        f"{ARCHITECTURE}.attention.head_count_kv": shape.kv_heads,
        f"{ARCHITECTURE}.feed_forward_length": shape.feed_forward,
        epsilon: small.value(epsilon) * small.shape.width / shape.width,
        "general.file_type": QUANTISATIONS[quantisation],
    }
    return metadata | {key: metadata[key]._replace(value=value) for key, value in changed.items()}


def _inflated_parts(small: Source, shape: Shape) -> Iterator[Part]:
    yield {
        "token_embd.weight": _padded(small.tensor("token_embd.weight"), None, shape.width),
        "output_norm.weight": _norm(small.tensor("output_norm.weight"), shape.width),
    }
    for i in range(small.shape.layers):
        yield _inflated_layer(small, i, shape)
    yield from [_idle_layer(shape, small.head_size)] * (shape.layers - small.shape.layers)


def _inflated_layer(small: Source, index: int, shape: Shape) -> Part:
    old, size = small.shape, small.head_size
    group, new_group = old.heads // old.kv_heads, shape.heads // shape.kv_heads
    # Head i reads KV head i // group: its place in the wider group of the same KV head.
    head_slots = [i // group * new_group + i % group for i in range(old.heads)]
    kv_slots = list(range(old.kv_heads))
    layer = {name: small.tensor(f"blk.{index}.{name}.weight") for name in LAYER_TENSORS}
    for name in ("attn_norm", "ffn_norm"):
        layer[name] = _norm(layer[name], shape.width)
    for name, slots, heads in (
        ("attn_q", head_slots, shape.heads),
        ("attn_k", kv_slots, shape.kv_heads),
        ("attn_v", kv_slots, shape.kv_heads),
    ):
        layer[name] = _padded(_spread(layer[name], slots, heads, size), None, shape.width)
    output = _spread(layer["attn_output"].T, head_slots, shape.heads, size).T
    layer["attn_output"] = _padded(output, shape.width, None)
    for name in ("ffn_gate", "ffn_up"):
        layer[name] = _padded(layer[name], shape.feed_forward, shape.width)
    layer["ffn_down"] = _padded(layer["ffn_down"], shape.width, shape.feed_forward)
    return layer


def _padded(weights: Weights, rows: int | None, columns: int | None) -> Weights:
    """``weights`` in the corner of a matrix of zeros; None: as many as there are."""
    wide = np.zeros((rows or weights.shape[0], columns or weights.shape[1]), np.float32)
    wide[: weights.shape[0], : weights.shape[1]] = weights
    return wide


def _norm(weights: Weights, width: int) -> Weights:
    """Norm weights for a width of which only the first ``len(weights)`` channels are not zero."""
    wide = np.zeros(width, np.float32)
    wide[: len(weights)] = weights * np.sqrt(len(weights) / width)
    return wide


def _spread(weights: Weights, slots: list[int], heads: int, size: int) -> Weights:
    """Blocks of ``size`` rows, block i moved to ``slots[i]`` of ``heads``; the others are zeros."""
    wide = np.zeros((heads, size, weights.shape[1]), np.float32)
    wide[slots] = weights.reshape(-1, size, weights.shape[1])
    return wide.reshape(heads * size, -1)


def _idle_layer(shape: Shape, size: int) -> Part:
    """A layer that adds nothing, at the cost of one that does; all idle layers are this one."""
    layer = random_layer(shape, size)
    for name in ("attn_output", "ffn_down"):
        layer[name] = np.zeros_like(layer[name])
    return layer


def random_layer(shape: Shape, size: int) -> Part:
    """A layer of random weights, with heads of ``size``."""
    rng = np.random.default_rng(0)
    sides = {
        "attn_q": (shape.heads * size, shape.width),
        "attn_k": (shape.kv_heads * size, shape.width),
        "attn_v": (shape.kv_heads * size, shape.width),
        "attn_output": (shape.width, shape.heads * size),
        "ffn_gate": (shape.feed_forward, shape.width),
        "ffn_up": (shape.feed_forward, shape.width),
        "ffn_down": (shape.width, shape.feed_forward),
    }
    ones = {"attn_norm": shape.width, "ffn_norm": shape.width, "attn_q_norm": size, "attn_k_norm": size}
    layer = {name: np.ones(n, np.float32) for name, n in ones.items()}
    return layer | {name: rng.standard_normal(side, np.float32) * NOISE for name, side in sides.items()}


def write_model(target: Path, metadata: dict[str, Value], parts: Iterator[Part], form: Form) -> None:
    """Write a GGUF beside ``target`` and move it there; raises :class:`LocalspecError`."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(fd)
        try:
            _write_gguf(Path(scratch), metadata, parts, form)
            os.replace(scratch, target)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise LocalspecError(
            f"{target} cannot be written: {error.strerror}", "Free some disk space, or set LOCALSPEC_HOME."
        ) from None


def _write_gguf(path: Path, metadata: dict[str, Value], parts: Iterator[Part], form: Form) -> None:
    gguf = gguf_package()
    kind = gguf.GGMLQuantizationType[form.quantisation]
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    for key, (value, type_, items) in metadata.items():
        writer.add_key_value(key, value, type_, items)
    last: Part = {}
    written: dict[str, Any] = {}
    for i, part in enumerate(parts):
        if part is not last:  # idle layers are one object: quantised, and held, once
            last = part
            # llama.cpp reads norms in F32 only.
            written = {n: w if w.ndim == 1 else gguf.quants.quantize(w, kind) for n, w in part.items()}
        for name, data in written.items():
            norm = part[name].ndim == 1
            full = f"blk.{i - 1}.{name}.weight" if i else name
            writer.add_tensor(full, data, raw_dtype=None if norm else kind)
        if form.progress is not None:
            form.progress(i / form.layers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
