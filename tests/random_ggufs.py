"""GGUF models of random weights, in the architectures that the bundled pair is not of.

The tensors are those that llama.cpp's src/models need; the tokenizer is that of the bundled models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests import compressed_ggufs
from tests.gguf_parts import (
    NOTHING,
    SMALL,
    Dimensions,
    Shapes,
    attention,
    common,
    delta_net,
    dense,
    ends,
    experts,
    in_layer,
    shared_expert,
    state_space,
    vocabulary_size,
    write,
)

GATES = ("ffn_gate_exps.weight", "ffn_gate_shexp.weight", "ffn_gate_inp_shexp.weight")
"""tensors of experts that a family without gates in them lacks"""

# The families.


def _lfm2(d: Dimensions, mixture: bool) -> tuple[dict[str, Any], Shapes]:
    kv_heads = [0 if d.is_recurrent(i) else d.kv_heads for i in range(d.layers)]
    values = common(
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
    shapes = ends(d, "token_embd_norm.weight")
    for i, cells in enumerate(kv_heads):
        block: Shapes = {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,)}
        block |= (experts(d) | {"exp_probs_b.bias": (d.experts,)}) if mixture and i else dense(d)
        block |= (
            attention(d)
            if cells
            else {
                "shortconv.conv.weight": (d.width, 3),
                "shortconv.in_proj.weight": (3 * d.width, d.width),
                "shortconv.out_proj.weight": (d.width, d.width),
            }
        )
        shapes |= in_layer(i, block)
    return values, shapes


def _mixture(d: Dimensions) -> dict[str, Any]:
    """Values of a model with experts, a shared one among them."""
    return {
        "expert_count": d.experts,
        "expert_used_count": 2,
        "expert_feed_forward_length": d.hidden,
        "expert_shared_feed_forward_length": d.hidden,
    }


def _qwen(d: Dimensions, mixture: bool, *, fused: bool = False) -> tuple[dict[str, Any], Shapes]:
    values = common(
        d,
        **{
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": d.kv_heads,
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "rope.dimension_count": d.head,
            "full_attention_interval": d.attention,
            **state_space(d),
        },
    )
    if not fused:
        values["rope.dimension_sections"] = [d.head // 4, d.head // 4, 0, 0]
    if mixture:
        values |= _mixture(d)
    shapes = ends(d)
    for i in range(d.layers):
        block: Shapes = {"attn_norm.weight": (d.width,), "post_attention_norm.weight": (d.width,)}
        block |= delta_net(d, fused=fused) if d.is_recurrent(i) else attention(d, gate=2)
        block |= experts(d) | shared_expert(d) if mixture else dense(d)
        shapes |= in_layer(i, block)
    return values, shapes


def _nemotron(d: Dimensions, mixture: bool) -> tuple[dict[str, Any], Shapes]:
    """Layers of one kind each: a Mamba-2 mixer, attention, a network."""
    kinds = [("mixer", "attention", "network")[i % 3] for i in range(d.layers)]
    values = common(
        d,
        **{
            "feed_forward_length": [d.hidden if kind == "network" else 0 for kind in kinds],
            "attention.head_count": d.heads,
            "attention.head_count_kv": [d.kv_heads if kind == "attention" else 0 for kind in kinds],
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "attention.layer_norm_epsilon": 1e-5,
            **state_space(d),
        },
    )
    if mixture:
        values |= _mixture(d)
    shapes = ends(d)
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
            block |= attention(d, norms=False)
        elif mixture:
            given = experts(d) | shared_expert(d) | {"exp_probs_b.bias": (d.experts,)}
            block |= {name: shape for name, shape in given.items() if name not in GATES}
        else:
            block |= {"ffn_up.weight": (d.hidden, d.width), "ffn_down.weight": (d.width, d.hidden)}
        shapes |= in_layer(i, block)
    return values, shapes


def _mamba(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    d = replace(d, ranks=2 * d.width // d.state)  # llama.cpp knows twice the width alone
    values = common(d, **{"feed_forward_length": 0, "attention.head_count": 0, **state_space(d)})
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


FAMILIES: Mapping[str, Callable[[Dimensions], tuple[dict[str, Any], Shapes]]] = {
    "lfm2": lambda d: _lfm2(d, mixture=False),
    "lfm2moe": lambda d: _lfm2(d, mixture=True),
    "qwen35": lambda d: _qwen(d, mixture=False),
    "qwen35moe": lambda d: _qwen(d, mixture=True),
    "qwen3next": lambda d: _qwen(d, mixture=True, fused=True),
    "nemotron_h": lambda d: _nemotron(d, mixture=False),
    "nemotron_h_moe": lambda d: _nemotron(d, mixture=True),
    "mamba": _mamba,
    "qwen4exp": compressed_ggufs.qwen4_exp,
    "kimi-k3": compressed_ggufs.kimi_k3,
    "bailingmoe3": compressed_ggufs.bailing_moe3,
    "glm5-next": compressed_ggufs.glm5_next,
    "deepseek4": compressed_ggufs.deepseek4,
}


def write_model(path: Path, architecture: str, d: Dimensions = SMALL, *, seed: int = 0) -> Path:
    """A model of one of :data:`FAMILIES`."""
    return write(path, architecture, *FAMILIES[architecture](d), seed=seed)


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


def write_mtp_head(path: Path, d: Dimensions = SMALL, *, values: Mapping[str, Any] = NOTHING) -> Path:
    """The last layer of a Qwen3.5 without the others, as llama.cpp's converter writes it with --mtp."""
    own, _ = _qwen(d, mixture=False)
    own |= {"block_count": d.layers + 1, "nextn_predict_layers": 1, **values}
    return write(path, "qwen35", own, ends(d) | _mtp_layer(d))


def write_model_with_mtp(path: Path, d: Dimensions = SMALL) -> Path:
    """A whole Qwen3.5 with that layer behind its own."""
    own, shapes = _qwen(d, mixture=False)
    own |= {"block_count": d.layers + 1, "nextn_predict_layers": 1}
    return write(path, "qwen35", own, shapes | _mtp_layer(d))


def _one_layer(d: Dimensions) -> dict[str, Any]:
    """The values of a head of one layer that takes states of its target's."""
    return common(
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
    block: Shapes = {name: (n, 2 * d.width) for name, (n, _) in attention(d, norms=False).items()}
    block |= {"attn_output.weight": (d.width, d.heads * d.head), "attn_norm.weight": (d.width,)}
    block |= {"attn_norm_2.weight": (d.width,), "ffn_norm.weight": (d.width,)} | dense(d)
    shapes: Shapes = {"fc.weight": (d.width, 3 * d.width), "output_norm.weight": (d.width,)}
    return write(path, "eagle3", own, shapes | in_layer(0, block))


def write_dflash_head(
    path: Path, d: Dimensions = SMALL, *, dspark: bool = False, values: Mapping[str, Any] = NOTHING
) -> Path:
    """A DFlash head of one layer, or with ``dspark`` a DSpark head."""
    own = _one_layer(d) | {"block_size": 8, **values}
    block = {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,), **attention(d), **dense(d)}
    shapes: Shapes = {"fc.weight": (d.width, 3 * d.width), "enc.output_norm.weight": (d.width,)}
    shapes |= {"output_norm.weight": (d.width,)}
    if dspark:
        shapes |= dict.fromkeys(("markov_w1.weight", "markov_w2.weight"), (vocabulary_size(), 8))
    return write(path, "dflash", own, shapes | in_layer(0, block))
