"""Write GGUF files of random weights in the shapes of Qwen2.5, to measure speed where no real one can be had.

    python -m assets.bench.shapes --like FILE.gguf --shape 7b --out FILE.gguf

The tokenizer is that of ``--like``, a Qwen2.5 file, of which only the header is read. Tensors have the types
of llama.cpp's Q4_K_M. Answers make no sense; times and memory are those of a trained model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

VOCABULARY = 151936


class Shape(NamedTuple):
    """The sizes of a model."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int


SHAPES = {
    "0.5b": Shape(24, 896, 4864, 14, 2),
    "1.5b": Shape(28, 1536, 8960, 12, 2),
    "7b": Shape(28, 3584, 18944, 28, 4),
}
SCALES: dict[Type, tuple[tuple[int, float], ...]] = {
    Type.Q4_K: ((0, 1 / 260), (2, 7.5 / 260)),
    Type.Q6_K: ((208, 1 / 1370),),
    Type.Q5_0: ((0, 1 / 9.2),),
    Type.Q8_0: ((0, 1 / 74),),
}
"""by type, the places of a block's scales of 16 bits, and their values for weights of variance 1"""
WHOLE = 256
"""the length of a K-quant's block"""
INSTEAD = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}
"""what llama.cpp takes for rows that such blocks do not divide"""


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], Type]]:
    """Names, sizes (rows first), and types."""
    width, kv = shape.width, shape.width // shape.heads * shape.kv_heads
    yield "token_embd.weight", (VOCABULARY, width), Type.Q4_K
    yield "output.weight", (VOCABULARY, width), Type.Q6_K
    yield "output_norm.weight", (width,), Type.F32
    eighth = shape.layers // 8
    for layer in range(shape.layers):
        # llama.cpp's use_more_bits.
        more = layer < eighth or layer >= 7 * shape.layers // 8 or (layer - eighth) % 3 == 2
        better = Type.Q6_K if more else Type.Q4_K
        for name, rows in (("attn_norm.weight", width), ("ffn_norm.weight", width), ("attn_q.bias", width)):
            yield f"blk.{layer}.{name}", (rows,), Type.F32
        for name in ("attn_k.bias", "attn_v.bias"):
            yield f"blk.{layer}.{name}", (kv,), Type.F32
        for name, rows, length, type in (
            ("attn_q", width, width, Type.Q4_K),
            ("attn_k", kv, width, Type.Q4_K),
            ("attn_v", kv, width, better),
            ("attn_output", width, width, Type.Q4_K),
            ("ffn_gate", shape.hidden, width, Type.Q4_K),
            ("ffn_up", shape.hidden, width, Type.Q4_K),
            ("ffn_down", width, shape.hidden, better),
        ):
            yield f"blk.{layer}.{name}.weight", (rows, length), type


def content(random: np.random.Generator, name: str, size: tuple[int, ...], type: Type) -> NDArray[np.uint8]:
    """Ones for norms, zeros for biases, or random blocks of weights of variance one over a row's length."""
    if type == Type.F32:
        return np.full(size, "norm" in name, np.float32).view(np.uint8)
    length, taken = GGML_QUANT_SIZES[type]
    blocks = random.integers(0, 256, (size[0] * size[1] // length, taken), np.uint8)
    for at, scale in SCALES[type]:
        blocks[:, at : at + 2] = np.frombuffer(np.float16(scale / size[1] ** 0.5).tobytes(), np.uint8)
    return blocks.reshape(size[0], -1)


def write(like: Path, shape: Shape, out: Path) -> None:
    """Write a model of this shape."""
    random, writer = np.random.default_rng(0), gguf.GGUFWriter(out, "qwen2", use_temp_file=True)
    for key, field in gguf.GGUFReader(like).fields.items():
        if key.startswith("tokenizer."):
            writer.add_key_value(key, field.contents(), field.types[0], *field.types[1:])
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    for name, size, type in tensors(shape):
        if type != Type.F32 and size[1] % WHOLE:
            type = INSTEAD[type]
        writer.add_tensor(name, content(random, name, size, type), raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--like", type=Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    write(given.like, SHAPES[given.shape], given.out)


if __name__ == "__main__":
    main()
