"""GGUF models of random weights, in the architectures that the bundled pair is not of.

The tensors are those that llama.cpp's src/models ask for; the tokenizer is that of the bundled models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from localspec.models.bundled import BUNDLED_TARGET, bundled_model

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
    fields = gguf.GGUFReader(bundled_model(BUNDLED_TARGET, "gguf")).fields
    return {
        key: (each.contents(), each.types) for key, each in fields.items() if key.startswith("tokenizer.")
    }


def vocabulary_size() -> int:
    return len(tokenizer()["tokenizer.ggml.tokens"][0])


def write(path: Path, architecture: str, values: Mapping[str, Any], shapes: Shapes, *, seed: int = 0) -> Path:
    """A file with these values, of which those without a dot at their start are the architecture's own, and
    random F32 tensors of these shapes."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, (content, types) in tokenizer().items():
        writer.add_key_value(key, content, types[0], *types[1:])
    for key, value in values.items():
        _add(writer, key.removeprefix(".") if key.startswith(".") else f"{architecture}.{key}", value)
    random = np.random.default_rng(seed)
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


def _common(d: Dimensions, **more: Any) -> dict[str, Any]:
    return {
        "context_length": d.context,
        "embedding_length": d.width,
        "block_count": d.layers,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **more,
    }


def _ends(d: Dimensions, norm: str = "output_norm.weight") -> Shapes:
    return {"token_embd.weight": (vocabulary_size(), d.width), norm: (d.width,)}


def _layer(number: int, shapes: Shapes) -> Shapes:
    return {f"blk.{number}.{name}": shape for name, shape in shapes.items()}


def _attention(d: Dimensions, *, gate: int = 1, norms: bool = True) -> Shapes:
    shapes: Shapes = {
        "attn_q.weight": (gate * d.heads * d.head, d.width),
        "attn_k.weight": (d.kv_heads * d.head, d.width),
        "attn_v.weight": (d.kv_heads * d.head, d.width),
        "attn_output.weight": (d.width, d.heads * d.head),
    }
    if norms:
        shapes |= {"attn_q_norm.weight": (d.head,), "attn_k_norm.weight": (d.head,)}
    return shapes


def _dense(d: Dimensions) -> Shapes:
    up = (d.hidden, d.width)
    return {"ffn_gate.weight": up, "ffn_up.weight": up, "ffn_down.weight": (d.width, d.hidden)}


def _experts(d: Dimensions) -> Shapes:
    up = (d.experts, d.hidden, d.width)
    return {
        "ffn_gate_inp.weight": (d.experts, d.width),
        "ffn_gate_exps.weight": up,
        "ffn_up_exps.weight": up,
        "ffn_down_exps.weight": (d.experts, d.width, d.hidden),
    }


def _shared_expert(d: Dimensions) -> Shapes:
    up = (d.hidden, d.width)
    return {
        "ffn_gate_inp_shexp.weight": (d.width,),
        "ffn_gate_shexp.weight": up,
        "ffn_up_shexp.weight": up,
        "ffn_down_shexp.weight": (d.width, d.hidden),
    }


# The families.


def _lfm2(d: Dimensions, mixture: bool) -> tuple[dict[str, Any], Shapes]:
    kv_heads = [0 if d.is_recurrent(i) else d.kv_heads for i in range(d.layers)]
    values = _common(
        d,
        **{
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": kv_heads,
            "shortconv.l_cache": 3,
        },
    )
    if mixture:
        values |= {
            "expert_count": d.experts,
            "expert_used_count": 2,
            "expert_feed_forward_length": d.hidden,
            "leading_dense_block_count": 1,
            "expert_gating_func": 2,
        }
    shapes = _ends(d, "token_embd_norm.weight")
    for i, cells in enumerate(kv_heads):
        block: Shapes = {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,)}
        block |= (_experts(d) | {"exp_probs_b.bias": (d.experts,)}) if mixture and i else _dense(d)
        block |= (
            _attention(d)
            if cells
            else {
                "shortconv.conv.weight": (d.width, 3),
                "shortconv.in_proj.weight": (3 * d.width, d.width),
                "shortconv.out_proj.weight": (d.width, d.width),
            }
        )
        shapes |= _layer(i, block)
    return values, shapes


def _delta_net(d: Dimensions, *, fused: bool) -> Shapes:
    """Linear attention with a gated delta rule, as Qwen has it since 3.5, or ``fused`` as in Qwen3-Next."""
    key = d.groups * d.state
    rates: Shapes = (
        {"ssm_ba.weight": (2 * d.ranks, d.width)}
        if fused
        else {"ssm_beta.weight": (d.ranks, d.width), "ssm_alpha.weight": (d.ranks, d.width)}
    )
    return rates | {
        "attn_qkv.weight": (2 * key + d.inner, d.width),
        "attn_gate.weight": (d.inner, d.width),
        "ssm_conv1d.weight": (2 * key + d.inner, d.kernel),
        "ssm_dt.bias": (d.ranks,),
        "ssm_a": (d.ranks,),
        "ssm_norm.weight": (d.state,),
        "ssm_out.weight": (d.width, d.inner),
    }


def _state_space(d: Dimensions) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": d.kernel,
        "ssm.inner_size": d.inner,
        "ssm.state_size": d.state,
        "ssm.time_step_rank": d.ranks,
        "ssm.group_count": d.groups,
    }


def _qwen(d: Dimensions, mixture: bool, *, fused: bool = False) -> tuple[dict[str, Any], Shapes]:
    values = _common(
        d,
        **{
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": d.kv_heads,
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "rope.dimension_count": d.head,
            "full_attention_interval": d.attention,
            **_state_space(d),
        },
    )
    if not fused:
        values["rope.dimension_sections"] = [d.head // 4, d.head // 4, 0, 0]
    if mixture:
        values |= {
            "expert_count": d.experts,
            "expert_used_count": 2,
            "expert_feed_forward_length": d.hidden,
            "expert_shared_feed_forward_length": d.hidden,
        }
    shapes = _ends(d)
    for i in range(d.layers):
        block: Shapes = {"attn_norm.weight": (d.width,), "post_attention_norm.weight": (d.width,)}
        block |= _delta_net(d, fused=fused) if d.is_recurrent(i) else _attention(d, gate=2)
        block |= _experts(d) | _shared_expert(d) if mixture else _dense(d)
        shapes |= _layer(i, block)
    return values, shapes


def _nemotron(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """Layers of one kind each: a Mamba-2 mixer, attention, a network."""
    kinds = [("mixer", "attention", "network")[i % 3] for i in range(d.layers)]
    values = _common(
        d,
        **{
            "feed_forward_length": [d.hidden if kind == "network" else 0 for kind in kinds],
            "attention.head_count": d.heads,
            "attention.head_count_kv": [d.kv_heads if kind == "attention" else 0 for kind in kinds],
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "attention.layer_norm_epsilon": 1e-5,
            **_state_space(d),
        },
    )
    shapes = _ends(d)
    mixed = d.inner + 2 * d.groups * d.state
    for i, kind in enumerate(kinds):
        block: Shapes = {"attn_norm.weight": (d.width,)}
        if kind == "mixer":
            block |= {
                "ssm_in.weight": (d.inner + mixed + d.ranks, d.width),
                "ssm_conv1d.weight": (mixed, d.kernel),
                "ssm_conv1d.bias": (mixed,),
                "ssm_dt.bias": (d.ranks,),
                "ssm_a": (d.ranks, 1),
                "ssm_d": (d.ranks, 1),
                "ssm_norm.weight": (d.groups, d.inner // d.groups),
                "ssm_out.weight": (d.width, d.inner),
            }
        elif kind == "attention":
            block |= _attention(d, norms=False)
        else:
            block |= {"ffn_up.weight": (d.hidden, d.width), "ffn_down.weight": (d.width, d.hidden)}
        shapes |= _layer(i, block)
    return values, shapes


def _mamba(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    d = replace(d, ranks=2 * d.width // d.state)  # llama.cpp knows twice the width alone
    values = _common(d, **{"feed_forward_length": 0, "attention.head_count": 0, **_state_space(d)})
    shapes = _ends(d)
    for i in range(d.layers):
        block: Shapes = {
            "ssm_in.weight": (2 * d.inner, d.width),
            "ssm_conv1d.weight": (d.inner, d.kernel),
            "ssm_conv1d.bias": (d.inner,),
            "ssm_x.weight": (d.ranks + 2 * d.state, d.inner),
            "ssm_dt.weight": (d.inner, d.ranks),
            "ssm_dt.bias": (d.inner,),
            "ssm_a": (d.inner, d.state),
            "ssm_d": (d.inner,),
            "ssm_out.weight": (d.width, d.inner),
            "attn_norm.weight": (d.width,),
        }
        shapes |= _layer(i, block)
    return values, shapes


FAMILIES: Mapping[str, Callable[[Dimensions], tuple[dict[str, Any], Shapes]]] = {
    "lfm2": lambda d: _lfm2(d, mixture=False),
    "lfm2moe": lambda d: _lfm2(d, mixture=True),
    "qwen35": lambda d: _qwen(d, mixture=False),
    "qwen35moe": lambda d: _qwen(d, mixture=True),
    "qwen3next": lambda d: _qwen(d, mixture=True, fused=True),
    "nemotron_h": _nemotron,
    "mamba": _mamba,
}


def write_model(path: Path, architecture: str, d: Dimensions = SMALL, *, seed: int = 0) -> Path:
    """A model of one of :data:`FAMILIES`."""
    return write(path, architecture, *FAMILIES[architecture](d), seed=seed)


# Heads, which draft for a model and are none.


def _mtp_layer(d: Dimensions) -> Shapes:
    block: Shapes = {"attn_norm.weight": (d.width,), "post_attention_norm.weight": (d.width,)}
    block |= _attention(d, gate=2) | _dense(d)
    block |= {
        "nextn.eh_proj.weight": (d.width, 2 * d.width),
        "nextn.enorm.weight": (d.width,),
        "nextn.hnorm.weight": (d.width,),
    }
    return _layer(d.layers, block)


def write_mtp_head(path: Path, d: Dimensions = SMALL, *, values: Mapping[str, Any] = NOTHING) -> Path:
    """The last layer of a Qwen3.5 without the others, as llama.cpp's converter writes it with --mtp."""
    own, _ = _qwen(d, mixture=False)
    own |= {"block_count": d.layers + 1, "nextn_predict_layers": 1, **values}
    return write(path, "qwen35", own, _ends(d) | _mtp_layer(d))


def write_model_with_mtp(path: Path, d: Dimensions = SMALL) -> Path:
    """A whole Qwen3.5 with that layer behind its own."""
    own, shapes = _qwen(d, mixture=False)
    own |= {"block_count": d.layers + 1, "nextn_predict_layers": 1}
    return write(path, "qwen35", own, shapes | _mtp_layer(d))


def _one_layer(d: Dimensions) -> dict[str, Any]:
    """The values of a head of one layer that is told states of its target's."""
    return _common(
        d,
        **{
            "block_count": 1,
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": d.kv_heads,
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "target_layers": [1, 2, 3],
        },
    )


def write_eagle_head(path: Path, d: Dimensions = SMALL, *, values: Mapping[str, Any] = NOTHING) -> Path:
    """An EAGLE-3 head without embeddings of its own."""
    own = _one_layer(d) | {"target_hidden_size": d.width, **values}
    block: Shapes = {name: (n, 2 * d.width) for name, (n, _) in _attention(d, norms=False).items()}
    block |= {"attn_output.weight": (d.width, d.heads * d.head), "attn_norm.weight": (d.width,)}
    block |= {"attn_norm_2.weight": (d.width,), "ffn_norm.weight": (d.width,)} | _dense(d)
    shapes: Shapes = {"fc.weight": (d.width, 3 * d.width), "output_norm.weight": (d.width,)}
    return write(path, "eagle3", own, shapes | _layer(0, block))


def write_dflash_head(
    path: Path, d: Dimensions = SMALL, *, dspark: bool = False, values: Mapping[str, Any] = NOTHING
) -> Path:
    """A DFlash head of one layer, or with ``dspark`` a DSpark head."""
    own = _one_layer(d) | {"block_size": 8, **values}
    block = {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,), **_attention(d), **_dense(d)}
    shapes: Shapes = {"fc.weight": (d.width, 3 * d.width), "enc.output_norm.weight": (d.width,)}
    shapes |= {"output_norm.weight": (d.width,)}
    if dspark:
        shapes |= dict.fromkeys(("markov_w1.weight", "markov_w2.weight"), (vocabulary_size(), 8))
    return write(path, "dflash", own, shapes | _layer(0, block))
