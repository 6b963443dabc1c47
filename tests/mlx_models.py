"""Small MLX models with random weights, one per family of caches, written as directories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

VOCABULARY = 264
"""rows of the embedding: 256 bytes, the specials, and two that have no text, as real models have"""
NAMES = ("endoftext", "im_start", "im_end", "fim_prefix", "fim_middle", "fim_suffix")
SPECIALS = [f"<|{name}|>" for name in NAMES]
PAD, IM_START, END = 256, 257, 258
WINDOW = 16
"""of layers that slide, and of chunks: smaller than any prompt with an answer"""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """The configuration written for a name, and what its weights are like."""

    config: Mapping[str, Any]
    dtype: str = "float32"
    bits: int | None = None
    """of quantised matrices, in groups of 32"""
    embedding: float = 1.0
    """standard deviation of the embedding's entries"""
    gain: float = 1.5
    """the factor by which a matrix enlarges its input, about"""


ATTENTION = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rope_theta": 10000.0,
}
QWEN3 = Family(ATTENTION | {"model_type": "qwen3", "tie_word_embeddings": True}, embedding=0.1, gain=2.5)

FAMILIES: Mapping[str, Family] = {
    "qwen3": QWEN3,
    "qwen3-4bit-bf16": replace(QWEN3, dtype="bfloat16", bits=4),
    "gpt-oss": Family(
        ATTENTION
        | {
            "model_type": "gpt_oss",
            "intermediate_size": 64,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "llama4": Family(
        {
            "model_type": "llama4",
            "text_config": ATTENTION
            | {
                "model_type": "llama4_text",
                "num_hidden_layers": 4,
                "intermediate_size_mlp": 96,
                "attention_bias": False,
                "attention_chunk_size": WINDOW,
                "interleave_moe_layer_step": 2,
                "num_local_experts": 4,
                "num_experts_per_tok": 1,
                "rope_scaling": None,
                "use_qk_norm": True,
                "floor_scale": 32,
            },
        },
    ),
    "deepseek-v32": Family(
        ATTENTION
        | {
            "model_type": "deepseek_v32",
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 32,
            "q_lora_rank": 48,
            "qk_rope_head_dim": 32,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "n_group": 2,
            "index_head_dim": 32,
            "index_n_heads": 2,
            "index_topk": WINDOW,
        },
    ),
    "qwen3.5": Family(
        {
            "model_type": "qwen3_5",
            "text_config": ATTENTION
            | {
                "model_type": "qwen3_5_text",
                "num_hidden_layers": 4,
                "linear_num_value_heads": 4,
                "linear_num_key_heads": 2,
                "linear_key_head_dim": 32,
                "linear_value_head_dim": 32,
                "linear_conv_kernel_dim": 4,
                "full_attention_interval": 2,
                "tie_word_embeddings": False,
            },
        },
    ),
    "baichuan-m1": Family(
        ATTENTION
        | {
            "model_type": "baichuan_m1",
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "sliding_window": WINDOW,
            "sliding_window_layers": [1],
            "conv_window": 2,
        },
    ),
}
"""One of each kind of cache: all cells, also with quantised weights; a window; chunks; selected cells; states
between layers of cells; states beside cells and a window. The third to fifth have experts."""


def write_model(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Write family ``name`` with random weights as an MLX directory under ``folder``; returns it."""
    family = FAMILIES[name]
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    _write_weights(family, path / "model.safetensors", seed)
    config: dict[str, Any] = dict(family.config) | {"eos_token_id": END, "pad_token_id": PAD}
    if family.bits is not None:
        config["quantization"] = {"group_size": 32, "bits": family.bits}
    (path / "config.json").write_text(json.dumps(config, indent=1))
    _write_tokenizer(path)
    return path


def _write_weights(family: Family, path: Path, seed: int) -> None:
    # Imported here: tests are named after FAMILIES where there is no MLX too.
    import mlx.core as mx
    from mlx.nn.layers.quantized import quantize
    from mlx.utils import tree_flatten, tree_unflatten
    from mlx_lm.utils import _get_classes

    config = json.loads(json.dumps(family.config))  # some classes of arguments write into it
    model_class, arguments = _get_classes(config)
    mx.random.seed(seed)
    model = model_class(arguments.from_dict(config))
    made: dict[str, Any] = dict(tree_flatten(model.parameters()))
    dtype = getattr(mx, family.dtype)
    weights = {key: _weight(family, key, value).astype(dtype) for key, value in made.items()}
    model.update(tree_unflatten(list(weights.items())))
    if family.bits is not None:
        quantize(model, group_size=32, bits=family.bits)
    saved: dict[str, Any] = dict(tree_flatten(model.parameters()))
    if family.config.get("tie_word_embeddings"):
        saved.pop("lm_head.weight", None)  # without it some models know that they are tied
    mx.save_safetensors(str(path), saved)


def _weight(family: Family, key: str, value: Any) -> Any:
    """A random matrix in the place of ``value``; vectors and what drives a recurrence stay as made."""
    import mlx.core as mx

    if not mx.any(value):  # as zeros many of them would switch off what a family is here for
        return 0.5 * mx.random.normal(value.shape)
    if not key.endswith("weight") or value.ndim < 2:
        return value
    if "embed" in key and value.shape[0] == VOCABULARY:
        return family.embedding * mx.random.normal(value.shape)
    fan_in = prod(value.shape[1:]) if "conv" in key else value.shape[-1]
    return family.gain * fan_in**-0.5 * mx.random.normal(value.shape)


def _write_tokenizer(path: Path) -> None:
    """One token for each byte, whose number it is."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab={_letter(byte): byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _letter(byte: int) -> str:
    """Return a byte's character in byte-level vocabularies: itself if visible, else one from U+0100 on."""
    hidden = [*range(33), *range(127, 161), 173]
    return chr(256 + hidden.index(byte)) if byte in hidden else chr(byte)
