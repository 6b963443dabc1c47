"""GGUF models of random weights, in the architectures that the bundled pair is not of.

The tensors are those that llama.cpp's src/models need; the tokenizer is that of the bundled models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.gguf_parts import (
    SMALL,
    Dimensions,
    Shapes,
    attention,
    common,
    dense,
    ends,
    experts,
    in_layer,
    state_space,
    vocabulary_size,
    write,
)

RANK = 32
"""width of compressed keys and values"""
STREAMS = 4
"""of hidden states, in hyper-connections"""
INDEX = {"heads": 2, "head": 32, "top": 64}
"""the index of sparse attention: ``top`` entries are read"""


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
    values = common(d) | {
        "feed_forward_length": d.hidden,
        "attention.head_count": d.heads,
        "attention.head_count_kv": d.kv_heads,
        "attention.key_length": d.head,
        "attention.value_length": d.head,
        "rope.dimension_count": d.head,
        "rope.dimension_sections": [d.head // 4, d.head // 4, 0, 0],
        "full_attention_interval": d.attention,
        **state_space(d),
    }
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
    return experts(d) | shared | {"exp_probs_b.bias": (d.experts,)}


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


# GLM 5: Kimi Delta Attention in most layers, indexed latent attention in the others.


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
    """Hyper-connections; the index pools the keys of four tokens."""
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
        "attention.indexer.head_count": INDEX["heads"],
        "attention.indexer.key_length": head,
        "attention.indexer.top_k": INDEX["top"],
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
    return write(path, architecture, *FAMILIES[architecture](d))


# Heads, which draft for a model and are none.


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


def _one_layer(d: Dimensions) -> dict[str, Any]:
    """The values of a head of one layer that takes states of its target's."""
    return common(d) | {
        "block_count": 1,
        "feed_forward_length": d.hidden,
        "attention.head_count": d.heads,
        "attention.head_count_kv": d.kv_heads,
        "attention.key_length": d.head,
        "attention.value_length": d.head,
        "target_layers": [1, 2, 3],
    }


def write_eagle_head(path: Path, d: Dimensions = SMALL) -> Path:
    """An EAGLE-3 head without embeddings of its own."""
    own = _one_layer(d) | {"target_hidden_size": d.width}
    block: Shapes = {name: (n, 2 * d.width) for name, (n, _) in attention(d, norms=False).items()}
    block |= {"attn_output.weight": (d.width, d.heads * d.head), "attn_norm.weight": (d.width,)}
    block |= {"attn_norm_2.weight": (d.width,), "ffn_norm.weight": (d.width,)} | dense(d)
    shapes: Shapes = {"fc.weight": (d.width, 3 * d.width), "output_norm.weight": (d.width,)}
    return write(path, "eagle3", own, shapes | in_layer(0, block))


def write_dflash_head(path: Path, d: Dimensions = SMALL) -> Path:
    own = _one_layer(d) | {"block_size": 8}
    block = {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,), **attention(d), **dense(d)}
    shapes: Shapes = {"fc.weight": (d.width, 3 * d.width), "enc.output_norm.weight": (d.width,)}
    shapes |= {"output_norm.weight": (d.width,)}
    return write(path, "dflash", own, shapes | in_layer(0, block))
