"""The writer of GGUF files of random weights, and tensors that :mod:`tests.random_ggufs` shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from localspec.models.catalogue import BUNDLED_TARGET, bundled_model

Shapes = dict[str, tuple[int, ...]]
"""of tensors as numpy has them: the last axis is GGUF's first"""


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a model; ``attention`` is how often a layer with cells comes."""

    layers: int = 4
    width: int = 64
    hidden: int = 96
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    state: int = 16
    groups: int = 2
    ranks: int = 4
    kernel: int = 4
    experts: int = 4
    attention: int = 2
    context: int = 4096

    @property
    def inner(self) -> int:
        return self.state * self.ranks

    def is_recurrent(self, layer: int) -> bool:
        return (layer + 1) % self.attention != 0


SMALL = Dimensions()
NOTHING: Mapping[str, Any] = {}


@cache
def tokenizer() -> Mapping[str, tuple[Any, Any]]:
    """The bundled tokenizer's values, with their types."""
    fields = gguf.GGUFReader(bundled_model(BUNDLED_TARGET)).fields
    return {
        key: (each.contents(), each.types) for key, each in fields.items() if key.startswith("tokenizer.")
    }


def vocabulary_size() -> int:
    return len(tokenizer()["tokenizer.ggml.tokens"][0])


def write(path: Path, architecture: str, values: Mapping[str, Any], shapes: Shapes) -> Path:
    """A file with these values, of which those without a dot at their start are the architecture's own, and
    random F32 tensors of these shapes."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, (content, types) in tokenizer().items():
        writer.add_key_value(key, content, types[0], *types[1:])
    for key, value in values.items():
        _add(writer, key.removeprefix(".") if key.startswith(".") else f"{architecture}.{key}", value)
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, _weights(random, name, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _weights(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    values = random.standard_normal(shape, dtype=np.float32)
    if name.endswith("ssm_a"):
        return -abs(values)
    if "norm" in name:
        return 1.0 + 0.1 * values
    return values / np.float32(shape[-1] ** 0.5) if len(shape) > 1 else 0.1 * values


def common(d: Dimensions) -> dict[str, Any]:
    return {
        "context_length": d.context,
        "embedding_length": d.width,
        "block_count": d.layers,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }


def ends(d: Dimensions, norm: str = "output_norm.weight") -> Shapes:
    return {"token_embd.weight": (vocabulary_size(), d.width), norm: (d.width,)}


def in_layer(number: int, shapes: Shapes) -> Shapes:
    return {f"blk.{number}.{name}": shape for name, shape in shapes.items()}


def attention(d: Dimensions, *, gate: int = 1, norms: bool = True) -> Shapes:
    shapes: Shapes = {
        "attn_q.weight": (gate * d.heads * d.head, d.width),
        "attn_k.weight": (d.kv_heads * d.head, d.width),
        "attn_v.weight": (d.kv_heads * d.head, d.width),
        "attn_output.weight": (d.width, d.heads * d.head),
    }
    if norms:
        shapes |= {"attn_q_norm.weight": (d.head,), "attn_k_norm.weight": (d.head,)}
    return shapes


def dense(d: Dimensions) -> Shapes:
    up = (d.hidden, d.width)
    return {"ffn_gate.weight": up, "ffn_up.weight": up, "ffn_down.weight": (d.width, d.hidden)}


def experts(d: Dimensions) -> Shapes:
    up = (d.experts, d.hidden, d.width)
    return {
        "ffn_gate_inp.weight": (d.experts, d.width),
        "ffn_gate_exps.weight": up,
        "ffn_up_exps.weight": up,
        "ffn_down_exps.weight": (d.experts, d.width, d.hidden),
    }


def state_space(d: Dimensions) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": d.kernel,
        "ssm.inner_size": d.inner,
        "ssm.state_size": d.state,
        "ssm.time_step_rank": d.ranks,
        "ssm.group_count": d.groups,
    }
