"""Trained weights as both backends read them: a GGUF and an MLX directory, F16 in both."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

from .atomic import replacing
from .chat import CHAT_TEMPLATE, END_OF_TEXT, SPECIAL_TOKENS, TURN_END
from .presets import NORM_EPSILON, ROPE_BASE, ModelShape

ARCHITECTURE = "qwen3"

# transformers' name of a weight within a layer, and llama.cpp's.
LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
FIM_KEYS = {
    "fim_pre": "<|fim_prefix|>",
    "fim_mid": "<|fim_middle|>",
    "fim_suf": "<|fim_suffix|>",
    "fim_pad": "<|fim_pad|>",
    "fim_rep": "<|repo_name|>",
    "fim_sep": "<|file_sep|>",
}

Weights = dict[str, np.ndarray[Any, np.dtype[np.float16]]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The part of tokenizer.json that a GGUF holds: tokens by id, and merges in order of rank."""

    tokens: list[str]
    merges: list[str]

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read it from a tokenizer.json."""
        model = json.loads(path.read_text("utf-8"))["model"]
        ids: dict[str, int] = model["vocab"]
        merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
        return cls(tokens=sorted(ids, key=lambda token: ids[token]), merges=merges)


def token_id(token: str) -> int:
    """The id of a special token."""
    return SPECIAL_TOKENS.index(token)


def tensor_names(layers: int) -> dict[str, str]:
    """transformers' name of every weight of a model, and llama.cpp's."""
    names = {"model.embed_tokens.weight": "token_embd.weight"}
    names["model.norm.weight"] = "output_norm.weight"
    for layer in range(layers):
        for theirs, ours in LAYER_TENSORS.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"blk.{layer}.{ours}.weight"
    return names


def mlx_config(shape: ModelShape, *, vocabulary: int, context: int) -> dict[str, Any]:
    """The model's config.json, for mlx-lm and transformers."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": ARCHITECTURE,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "rms_norm_eps": NORM_EPSILON,
        "rope_theta": ROPE_BASE,
        "tie_word_embeddings": True,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "attention_bias": False,
        "hidden_act": "silu",
        "torch_dtype": "float16",
        "bos_token_id": token_id(END_OF_TEXT),
        "eos_token_id": [token_id(END_OF_TEXT), token_id(TURN_END)],
    }


def mlx_tokenizer_config(context: int) -> dict[str, Any]:
    """The tokenizer_config.json, for mlx-lm and transformers."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def add_shape(writer: gguf.GGUFWriter, shape: ModelShape, context: int) -> None:
    """The keys that tell llama.cpp the model's shape."""
    writer.add_context_length(context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    """The tokenizer, the special tokens' roles and the chat template."""
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    ordinary = len(vocabulary.tokens) - len(SPECIAL_TOKENS)
    control = [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    writer.add_token_types([*control, *[gguf.TokenType.NORMAL] * ordinary])
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(token_id(END_OF_TEXT))
    writer.add_eos_token_id(token_id(TURN_END))
    writer.add_eot_token_id(token_id(TURN_END))
    writer.add_pad_token_id(token_id(END_OF_TEXT))
    writer.add_add_bos_token(False)
    for key, token in FIM_KEYS.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token_id(token))
    writer.add_chat_template(CHAT_TEMPLATE)


def write_gguf(path: Path, shape: ModelShape, weights: Weights, vocabulary: Vocabulary, context: int) -> None:
    """Write the GGUF: matrices in F16, norms in F32 (llama.cpp reads them in nothing else)."""
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_name(shape.name)
    add_shape(writer, shape, context)
    add_vocabulary(writer, vocabulary)
    for theirs, ours in tensor_names(shape.layers).items():
        tensor = weights[theirs]
        writer.add_tensor(ours, tensor.astype(np.float32) if tensor.ndim == 1 else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def export(shape: ModelShape, *, weights: Path, tokenizer: Path, context: int, folder: Path) -> None:
    """Write a model's folder: NAME.gguf, and the four files of an MLX model."""
    # Rounded once, before both formats are written: they hold exactly the same numbers.
    rounded: Weights = {name: w.astype(np.float16) for name, w in load_file(weights).items()}
    vocabulary = Vocabulary.read(tokenizer)
    with replacing(folder) as partial:
        partial.mkdir(exist_ok=True)
        save_file(rounded, partial / "model.safetensors", metadata={"format": "pt"})
        size = len(vocabulary.tokens)
        write_json(partial / "config.json", mlx_config(shape, vocabulary=size, context=context))
        write_json(partial / "tokenizer_config.json", mlx_tokenizer_config(context))
        shutil.copyfile(tokenizer, partial / "tokenizer.json")
        write_gguf(partial / f"{shape.name}.gguf", shape, rounded, vocabulary, context)
