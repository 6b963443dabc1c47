"""GGUF models of random weights, in the architectures that the bundled pair is not of, and split ones.

The tensors are those that llama.cpp's src/models need; the tokenizer is that of the bundled models.
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
RANK = 32
"""width of compressed keys and values"""
STREAMS = 4
"""of hidden states, in hyper-connections"""
INDEX = {"heads": 2, "head": 32, "top": 64}
"""the index of sparse attention: ``top`` entries are read"""


@cache
def tokenizer() -> Mapping[str, tuple[Any, Any]]:
    """The bundled tokenizer's values, with their types."""
    fields = gguf.GGUFReader(bundled_model(BUNDLED_TARGET)).fields
    return {
        key: (each.contents(), each.types) for key, each in fields.items() if key.startswith("tokenizer.")
    }


def vocabulary_size() -> int:
    return len(tokenizer()["tokenizer.ggml.tokens"][0])


def write(path: Path, architecture: str, values: Mapping[str, Any], shapes: Shapes, parts: int = 1) -> Path:
    """A file with these values of the architecture, and random F32 tensors of these shapes; or several."""
    most = -(-len(shapes) // parts) if parts > 1 else 0
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=most)
    for key, (content, types) in tokenizer().items():
        writer.add_key_value(key, content, types[0], *types[1:])
    for key, value in values.items():
        _add(writer, f"{architecture}.{key}", value)
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


def attention(d: Dimensions, *, gate: int = 1) -> Shapes:
    return {
        "attn_q.weight": (gate * d.heads * d.head, d.width),
        "attn_k.weight": (d.kv_heads * d.head, d.width),
        "attn_v.weight": (d.kv_heads * d.head, d.width),
        "attn_output.weight": (d.width, d.heads * d.head),
        "attn_q_norm.weight": (d.head,),
        "attn_k_norm.weight": (d.head,),
    }


def dense(d: Dimensions) -> Shapes:
    up = (d.hidden, d.width)
    return {"ffn_gate.weight": up, "ffn_up.weight": up, "ffn_down.weight": (d.width, d.hidden)}


def state_space(d: Dimensions) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": d.kernel,
        "ssm.inner_size": d.inner,
        "ssm.state_size": d.state,
        "ssm.time_step_rank": d.ranks,
        "ssm.group_count": d.groups,
    }


def _norms(d: Dimensions) -> Shapes:
    return {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,)}


def _lfm2(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    kv_heads = [0 if d.is_recurrent(i) else d.kv_heads for i in range(d.layers)]
    values = common(d) | {
        "feed_forward_length": d.hidden,
        "attention.head_count": d.heads,
        "attention.head_count_kv": kv_heads,
        "shortconv.l_cache": 3,
    }
    convolution: Shapes = {
        "shortconv.conv.weight": (d.width, 3),
        "shortconv.in_proj.weight": (3 * d.width, d.width),
        "shortconv.out_proj.weight": (d.width, d.width),
    }
    shapes = ends(d, "token_embd_norm.weight")
    for i, cells in enumerate(kv_heads):
        shapes |= in_layer(i, _norms(d) | dense(d) | (attention(d) if cells else convolution))
    return values, shapes


def _delta_net(d: Dimensions) -> Shapes:
    """Linear attention with a gated delta rule."""
    key = d.groups * d.state
    return {
        "ssm_beta.weight": (d.ranks, d.width),
        "ssm_alpha.weight": (d.ranks, d.width),
        "attn_qkv.weight": (2 * key + d.inner, d.width),
        "attn_gate.weight": (d.inner, d.width),
        "ssm_conv1d.weight": (2 * key + d.inner, d.kernel),
        "ssm_dt.bias": (d.ranks,),
        "ssm_a": (d.ranks,),
        "ssm_norm.weight": (d.state,),
        "ssm_out.weight": (d.width, d.inner),
    }


def _qwen(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    values = (
        common(d)
        | {
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": d.kv_heads,
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "rope.dimension_count": d.head,
            "rope.dimension_sections": [d.head // 4, d.head // 4, 0, 0],
            "full_attention_interval": d.attention,
        }
        | state_space(d)
    )
    shapes = ends(d)
    for i in range(d.layers):
        block: Shapes = {"attn_norm.weight": (d.width,), "post_attention_norm.weight": (d.width,)}
        block |= _delta_net(d) if d.is_recurrent(i) else attention(d, gate=2)
        shapes |= in_layer(i, block | dense(d))
    return values, shapes


def _mamba(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    d = replace(d, ranks=2 * d.width // d.state)  # llama.cpp knows twice the width alone
    values = common(d) | {"feed_forward_length": 0, "attention.head_count": 0} | state_space(d)
    shapes = ends(d)
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
        shapes |= in_layer(i, block)
    return values, shapes


def _biased_experts(d: Dimensions) -> Shapes:
    """Experts with a bias of the router, and a shared one."""
    wide, narrow = (d.hidden, d.width), (d.width, d.hidden)
    shared = {"ffn_gate_shexp.weight": wide, "ffn_up_shexp.weight": wide, "ffn_down_shexp.weight": narrow}
    own = {name.replace("_shexp", "_exps"): (d.experts, *shape) for name, shape in shared.items()}
    return {"ffn_gate_inp.weight": (d.experts, d.width), **own, **shared, "exp_probs_b.bias": (d.experts,)}


def _mixed_streams(d: Dimensions) -> Shapes:
    mixed = (2 + STREAMS) * STREAMS
    shapes: Shapes = {}
    for part in ("attn", "ffn"):
        shapes |= {
            f"hc_{part}_fn.weight": (mixed, STREAMS * d.width),
            f"hc_{part}_base.weight": (mixed,),
            f"hc_{part}_scale.weight": (3,),
        }
    return shapes


def _kda(d: Dimensions) -> Shapes:
    inner = d.heads * d.head
    shapes: Shapes = {f"ssm_conv1d_{each}.weight": (inner, 1, d.kernel) for each in "qkv"}
    shapes |= {f"attn_{each}.weight": (inner, d.width) for each in "qkv"}
    for gate in ("ssm_f", "ssm_g"):
        shapes |= {f"{gate}_a.weight": (d.head, d.width), f"{gate}_b.weight": (inner, d.head)}
    return shapes | {
        "ssm_beta.weight": (d.heads, d.width),
        "ssm_a": (d.heads,),
        "ssm_dt.bias": (inner,),
        "ssm_norm.weight": (d.head,),
        "attn_output.weight": (d.width, inner),
    }


def _latent(d: Dimensions) -> Shapes:
    return {
        "attn_q_a.weight": (RANK, d.width),
        "attn_q_a_norm.weight": (RANK,),
        "attn_q_b.weight": (d.heads * d.head, RANK),
        "attn_kv_a_mqa.weight": (RANK, d.width),
        "attn_kv_a_norm.weight": (RANK,),
        "attn_k_b.weight": (d.heads, RANK, d.head),
        "attn_v_b.weight": (d.heads, d.head, RANK),
        "attn_output.weight": (d.width, d.heads * d.head),
    }


def _glm5_next(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """Kimi Delta Attention in most layers, indexed latent attention in the others; hyper-connections;
    the index pools the keys of four tokens."""
    pool = 4
    head = INDEX["head"]
    values = common(d) | {
        "feed_forward_length": d.hidden,
        "attention.head_count": d.heads,
        "attention.head_count_kv": [0 if d.is_recurrent(i) else 1 for i in range(d.layers)],
        "attention.key_length": RANK,
        "attention.value_length": RANK,
        "attention.key_length_mla": d.head,
        "attention.value_length_mla": d.head,
        "attention.q_lora_rank": RANK,
        "attention.kv_lora_rank": RANK,
        "attention.indexer.kpool": pool,
        "attention.indexer.kpool_select_tail": True,
        "rope.dimension_count": 0,
        "leading_dense_block_count": 1,
        "ssm.conv_kernel": d.kernel,
        "kda.head_dim": d.head,
        "kda.gate_lower_bound": -5.0,
        "expert_count": d.experts,
        "expert_used_count": 2,
        "expert_feed_forward_length": d.hidden,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "hyper_connection.count": STREAMS,
        "hyper_connection.sinkhorn_iterations": 2,
        "hyper_connection.epsilon": 1e-6,
        "attention.indexer.head_count": INDEX["heads"],
        "attention.indexer.key_length": head,
        "attention.indexer.top_k": INDEX["top"],
    }
    shapes = ends(d) | {"output.weight": (vocabulary_size(), d.width)}
    for i in range(d.layers):
        block = _norms(d) | _mixed_streams(d)
        block |= _kda(d) if d.is_recurrent(i) else _latent(d)
        if not d.is_recurrent(i):
            block |= {
                "indexer.k_norm.weight": (head,),
                "indexer.k_norm.bias": (head,),
                "indexer.proj.weight": (INDEX["heads"], d.width),
                "indexer.attn_k.weight": (head, d.width),
                "indexer.attn_q_b.weight": (INDEX["heads"] * head, RANK),
                "indexer_compressor_gate.weight": (head, d.width),
                "indexer_compressor_ape.weight": (pool, head),
            }
        block |= _biased_experts(d) if i else dense(d)
        shapes |= in_layer(i, block)
    return values, shapes


FAMILIES: Mapping[str, Callable[[Dimensions], tuple[dict[str, Any], Shapes]]] = {
    "lfm2": _lfm2,
    "qwen35": _qwen,
    "glm5-next": _glm5_next,
    "mamba": _mamba,
}
"""One of each kind of state: a convolution's, linear attention's, one that is right in the first sequence
alone, one that cannot be rolled back. The third has experts."""


def write_model(path: Path, architecture: str, d: Dimensions = SMALL) -> Path:
    """A model of one of :data:`FAMILIES`."""
    return write(path, architecture, *FAMILIES[architecture](d))


def _mtp_layer(d: Dimensions) -> Shapes:
    block: Shapes = {"attn_norm.weight": (d.width,), "post_attention_norm.weight": (d.width,)}
    block |= attention(d, gate=2) | dense(d)
    block |= {
        "nextn.eh_proj.weight": (d.width, 2 * d.width),
        "nextn.enorm.weight": (d.width,),
        "nextn.hnorm.weight": (d.width,),
    }
    return in_layer(d.layers, block)


def write_mtp_head(path: Path, d: Dimensions = SMALL) -> Path:
    """The last layer of a Qwen3.5 without the others, as llama.cpp's converter writes it with --mtp."""
    own, _ = _qwen(d)
    own |= {"block_count": d.layers + 1, "nextn_predict_layers": 1}
    return write(path, "qwen35", own, ends(d) | _mtp_layer(d))


def write_model_with_mtp(path: Path, d: Dimensions = SMALL) -> Path:
    """A whole Qwen3.5 with that layer behind its own."""
    own, shapes = _qwen(d)
    own |= {"block_count": d.layers + 1, "nextn_predict_layers": 1}
    return write(path, "qwen35", own, shapes | _mtp_layer(d))


def write_llama(path: Path, layers: int = 1, parts: int = 1) -> list[Path]:
    """A small model of the most common family; returns its files."""
    d = Dimensions(layers=layers, width=32, hidden=64, heads=2, kv_heads=1, context=2048)
    values = common(d) | {
        "feed_forward_length": d.hidden,
        "attention.head_count": d.heads,
        "attention.head_count_kv": d.kv_heads,
        "rope.dimension_count": d.head,
    }
    attending = {name: shape for name, shape in attention(d).items() if "norm" not in name}
    shapes = ends(d)
    for layer in range(layers):
        shapes |= in_layer(layer, _norms(d) | dense(d) | attending)
    write(path, "llama", values, shapes, parts)
    return sorted(path.parent.glob(f"{path.stem}*.gguf"))
