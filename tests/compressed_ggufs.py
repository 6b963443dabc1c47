"""Families of :mod:`tests.random_ggufs` whose attention reads compressed or selected entries."""

from __future__ import annotations

from typing import Any

from tests.gguf_parts import (
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
)

RANK = 32
"""width of compressed keys and values"""
STREAMS = 4
"""of hidden states, in hyper-connections"""
INDEX = {"heads": 2, "head": 32, "top": 64}
"""the index of sparse attention: ``top`` entries are read"""
ROTATED = 64
"""least width of keys that llama.cpp rotates before it stores them"""
SQRT_SOFTPLUS = 4
NGRAM, NGRAM_HEADS, NGRAM_VOCABULARY = 3, 2, 61
"""of hashed embeddings of n-grams"""


def _mixture(d: Dimensions, *, gating: int = 2) -> dict[str, Any]:
    return {
        "expert_count": d.experts,
        "expert_used_count": 2,
        "expert_feed_forward_length": d.hidden,
        "expert_shared_count": 1,
        "expert_gating_func": gating,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
    }


def _biased_experts(d: Dimensions) -> Shapes:
    """Experts with a bias of the router, and a shared one without a gate."""
    shared = shared_expert(d)
    del shared["ffn_gate_inp_shexp.weight"]
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


def _hyper_connections() -> dict[str, Any]:
    return {
        "hyper_connection.count": STREAMS,
        "hyper_connection.sinkhorn_iterations": 2,
        "hyper_connection.epsilon": 1e-6,
    }


def _indexed(head: int = INDEX["head"]) -> dict[str, Any]:
    return {
        "attention.indexer.head_count": INDEX["heads"],
        "attention.indexer.key_length": head,
        "attention.indexer.top_k": INDEX["top"],
    }


# Kimi Delta Attention in most layers, latent attention in the others.


def _kda_values(d: Dimensions, rope: int) -> dict[str, Any]:
    return common(
        d,
        **{
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": [0 if d.is_recurrent(i) else 1 for i in range(d.layers)],
            "attention.key_length": RANK + rope,
            "attention.value_length": RANK,
            "attention.key_length_mla": d.head + rope,
            "attention.value_length_mla": d.head,
            "attention.q_lora_rank": RANK,
            "attention.kv_lora_rank": RANK,
            "rope.dimension_count": rope,
            "leading_dense_block_count": 1,
            "ssm.conv_kernel": d.kernel,
            "kda.head_dim": d.head,
            "kda.gate_lower_bound": -5.0,
        },
        **_mixture(d),
    )


def _kda(d: Dimensions, *gates: str) -> Shapes:
    """``gates`` are the tensors of the width of all heads; the others are a product of two."""
    inner = d.heads * d.head
    shapes: Shapes = {f"ssm_conv1d_{each}.weight": (inner, 1, d.kernel) for each in "qkv"}
    shapes |= {f"attn_{each}.weight": (inner, d.width) for each in "qkv"}
    for gate in {"ssm_f_a", "ssm_g_a"} - {*gates}:
        if gate == "ssm_g_a" and "ssm_g" in gates:
            continue
        shapes[f"{gate}.weight"] = (d.head, d.width)
        shapes[f"{gate[:-1]}b.weight"] = (inner, d.head)
    return shapes | {
        **{f"{gate}.weight": (inner, d.width) for gate in gates},
        "ssm_beta.weight": (d.heads, d.width),
        "ssm_a": (d.heads,),
        "ssm_dt.bias": (inner,),
        "ssm_norm.weight": (d.head,),
        "attn_output.weight": (d.width, inner),
    }


def _latent(d: Dimensions, rope: int, gate: int = 0) -> Shapes:
    shapes: Shapes = {"attn_gate.weight": (gate, d.width)} if gate else {}
    return shapes | {
        "attn_q_a.weight": (RANK, d.width),
        "attn_q_a_norm.weight": (RANK,),
        "attn_q_b.weight": (d.heads * (d.head + rope), RANK),
        "attn_kv_a_mqa.weight": (RANK + rope, d.width),
        "attn_kv_a_norm.weight": (RANK,),
        "attn_k_b.weight": (d.heads, RANK, d.head),
        "attn_v_b.weight": (d.heads, d.head, RANK),
        "attn_output.weight": (d.width, d.heads * d.head),
    }


def _norms(d: Dimensions) -> Shapes:
    return {"attn_norm.weight": (d.width,), "ffn_norm.weight": (d.width,)}


def _output(d: Dimensions) -> Shapes:
    return {"output.weight": (vocabulary_size(), d.width)}


def kimi_k3(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """Later layers read the sums of earlier ones, too; experts compute in a narrower space."""
    latent = d.width // 2
    values = _kda_values(d, 8) | {
        "expert_latent_length": latent,
        "attn_res.block_size": 2,
        "activation.situ_beta": 4.0,
        "activation.situ_linear_beta": 25.0,
    }
    shapes = ends(d) | _output(d) | {"output_res_score.weight": (d.width,)}
    up = (d.experts, d.hidden, latent)
    for i in range(d.layers):
        block = _norms(d) | {"attn_res_score.weight": (d.width,), "ffn_res_score.weight": (d.width,)}
        block |= _kda(d, "ssm_g") if d.is_recurrent(i) else _latent(d, 8, d.heads * d.head)
        block |= _biased_experts(d) if i else dense(d)
        if i:
            block |= {"ffn_gate_exps.weight": up, "ffn_up_exps.weight": up}
            block |= {
                "ffn_down_exps.weight": (d.experts, latent, d.hidden),
                "ffn_routed_down.weight": (latent, d.width),
                "ffn_routed_up.weight": (d.width, latent),
            }
        shapes |= in_layer(i, block)
    return values, shapes


def bailing_moe3(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """Gates of full rank."""
    shapes = ends(d)
    for i in range(d.layers):
        block = _norms(d)
        block |= _kda(d, "ssm_f_a", "ssm_g_a") if d.is_recurrent(i) else _latent(d, 8, d.heads)
        if d.is_recurrent(i):
            block["ssm_a"] = (d.heads, 1)
        block |= _biased_experts(d) if i else dense(d)
        shapes |= in_layer(i, block)
    return _kda_values(d, 8), shapes


def glm5_next(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """Hyper-connections; the index pools the keys of four tokens."""
    pool = 4
    values = _kda_values(d, 0) | _hyper_connections() | _indexed()
    values |= {"attention.indexer.kpool": pool, "attention.indexer.kpool_select_tail": True}
    head = INDEX["head"]
    shapes = ends(d) | _output(d)
    for i in range(d.layers):
        block = _norms(d) | _mixed_streams(d)
        block |= _kda(d) if d.is_recurrent(i) else _latent(d, 0)
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


def _compressor(width: int, head: int, ratio: int, name: str = "attn_compressor") -> Shapes:
    own = (2 if ratio == 4 else 1) * head
    return {
        f"{name}_kv.weight": (own, width),
        f"{name}_gate.weight": (own, width),
        f"{name}_ape.weight": (ratio, own),
        f"{name}_norm.weight": (head,),
    }


def deepseek4(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """A sliding window, and entries that stand for 4 or 128 tokens each; what is not yet an entry is the
    state."""
    ratios, groups, index = [(0, 4, 128, 4)[i % 4] for i in range(d.layers)], 2, ROTATED
    head = d.head * 2
    values = common(
        d,
        **{
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": 1,
            "attention.key_length": head,
            "attention.value_length": head,
            "attention.q_lora_rank": RANK,
            "attention.sliding_window": 32,
            "attention.compress_ratios": ratios,
            "attention.compress_rope_freq_base": 160000.0,
            "attention.output_group_count": groups,
            "attention.output_lora_rank": RANK,
            "rope.dimension_count": head // 2,
            "swiglu_clamp_exp": 10.0,
            "hash_layer_count": 0,
        },
        **_mixture(d, gating=SQRT_SOFTPLUS) | _hyper_connections() | _indexed(ROTATED),
    )
    shapes = ends(d) | _output(d)
    shapes |= {"output_hc_fn.weight": (STREAMS, STREAMS * d.width), "output_hc_base.weight": (STREAMS,)}
    shapes |= {"output_hc_scale.weight": (1,)}
    for i, ratio in enumerate(ratios):
        block = _norms(d) | _mixed_streams(d) | _biased_experts(d)
        block |= {
            "attn_sinks.weight": (d.heads,),
            "attn_q_a.weight": (RANK, d.width),
            "attn_q_a_norm.weight": (RANK,),
            "attn_q_b.weight": (d.heads * head, RANK),
            "attn_kv.weight": (head, d.width),
            "attn_kv_a_norm.weight": (head,),
            "attn_output_a.weight": (groups * RANK, d.heads * head // groups),
            "attn_output_b.weight": (d.width, groups * RANK),
        }
        block |= _compressor(d.width, head, ratio) if ratio else {}
        if ratio == 4:
            block |= _compressor(d.width, index, ratio, "indexer_compressor")
            block |= {"indexer.proj.weight": (INDEX["heads"], d.width)}
            block |= {"indexer.attn_q_b.weight": (INDEX["heads"] * index, RANK)}
        shapes |= in_layer(i, block)
    return values, shapes


def _low_rank_streams(d: Dimensions, rank: int) -> Shapes:
    wide, shapes = STREAMS * d.width, Shapes()
    for part in ("attn", "ffn"):
        shapes |= {
            f"hc_{part}_norm.weight": (wide,),
            f"hc_{part}_down.weight": (rank, wide),
            f"hc_{part}_up.weight": (wide, rank),
            f"hc_{part}_inject.weight": (STREAMS, wide),
        }
    return shapes


def _hashed(d: Dimensions) -> Shapes:
    wide = STREAMS * d.width
    norms = dict.fromkeys(("key", "query", "conv"), (wide,))
    return {
        "ple_key.weight": (wide, d.width),
        "ple_value.weight": (d.width, d.width),
        **{f"ple_norm_{name}.weight": shape for name, shape in norms.items()},
        "ple_conv1d.weight": (wide, d.kernel),
    }


def qwen4_exp(d: Dimensions) -> tuple[dict[str, Any], Shapes]:
    """Hyper-connections, indexed attention, and embeddings of n-grams in the first layer."""
    heads, rank = (NGRAM - 1) * NGRAM_HEADS, 8
    values = common(
        d,
        **{
            "feed_forward_length": d.hidden,
            "attention.head_count": d.heads,
            "attention.head_count_kv": d.kv_heads,
            "attention.key_length": d.head,
            "attention.value_length": d.head,
            "attention.compress_ratios": [4] * d.layers,
            "rope.dimension_count": d.head,
            "rope.dimension_sections": [d.head // 4, d.head // 4, 0, 0],
            "full_attention_interval": d.attention,
            "expert_shared_feed_forward_length": d.hidden,
            "hyper_connection.count": STREAMS,
            "hyper_connection.low_rank": rank,
            "ple.layers": [0],
            "ple.ngram_size": NGRAM,
            "ple.heads_per_ngram": NGRAM_HEADS,
            "ple.conv_kernel": d.kernel,
            "ple.eos_token_id": 0,
            "ple.layer_multipliers": [1, 3, 5],
            "ple.head_offsets": [NGRAM_VOCABULARY * i for i in range(heads)],
            "ple.head_vocab_sizes": [NGRAM_VOCABULARY] * heads,
            "embedding_length_per_layer_input": d.width // heads,
        },
        **_mixture(d) | _indexed(d.head) | state_space(d),
    )
    wide = STREAMS * d.width
    shapes: Shapes = {"token_embd.weight": (vocabulary_size(), d.width), "output_hc_norm.weight": (wide,)}
    shapes |= {"output_hc_down.weight": (rank, wide), "output_hc_up.weight": (wide, rank)}
    shapes |= {"per_layer_token_embd.weight": (NGRAM_VOCABULARY * heads, d.width // heads)}
    for i in range(d.layers):
        block = _low_rank_streams(d, rank) | experts(d) | shared_expert(d) | (_hashed(d) if not i else {})
        block |= delta_net(d, fused=False) if d.is_recurrent(i) else attention(d, gate=2)
        if not d.is_recurrent(i):
            block |= {
                "indexer.q_proj.weight": (INDEX["heads"] * d.head, d.width),
                "indexer.k_proj.weight": (d.head, d.width),
                "indexer.q_norm.weight": (d.head,),
                "indexer.k_norm.weight": (d.head,),
            }
        shapes |= in_layer(i, block)
    return values, shapes
