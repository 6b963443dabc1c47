"""The bundled pair, and Llama models, as MLX directories in float16, made from GGUF files once a run."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file

from localspec.models.catalogue import bundled_model

CONTROL = 3
"""the type of special tokens in a GGUF vocabulary"""
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""the pre-tokenizer that a GGUF file calls ``qwen2``"""


@cache
def mlx_model(name: str) -> Path:
    """The MLX directory of a bundled model, by its name; it is removed when the run ends."""
    return mlx_copy(bundled_model(name), name)


def mlx_copy(path: Path, name: str) -> Path:
    """Write a directory ``name`` with the model of a GGUF file; it is removed when the run ends."""
    folder = _run() / name
    folder.mkdir()
    reader = GGUFReader(path)
    tensors = {_name(each.name): _weights(reader, each) for each in reader.tensors}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})
    files = {
        "config.json": _config(reader),
        "tokenizer.json": _tokenizer(reader),
        "tokenizer_config.json": _tokenizer_config(reader),
    }
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder


def in_both_formats(folder: Path, name: str, bundled: str) -> tuple[Path, Path]:
    """Write a bundled model into ``folder`` in both formats under one name; return both paths."""
    file, directory = folder / f"{name}.gguf", folder / name
    shutil.copyfile(bundled_model(bundled), file)
    shutil.copytree(mlx_model(bundled), directory)
    return file, directory


@cache
def _run() -> Path:
    path = Path(tempfile.mkdtemp(prefix="localspec-mlx-")).resolve()
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _name(tensor: str) -> str:
    """The name of a GGUF tensor in an MLX directory."""
    *layer, kind, _ = tensor.split(".")
    inside = f"model.layers.{layer[1]}." if layer else ""
    return f"{inside}{TENSORS[kind]}.weight"


def _weights(reader: GGUFReader, tensor: ReaderTensor) -> NDArray[np.float16]:
    """Its numbers; llama.cpp has the rows of Llama's queries and keys in pairs, MLX in halves."""
    numbers = dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(tensor.name.split(".")[-2])
    if heads is None or _architecture(reader) != "llama":
        return numbers
    count = field_of(reader, f"llama.attention.{heads}")
    halves = numbers.reshape(count, len(numbers) // count // 2, 2, -1).swapaxes(1, 2)
    return np.ascontiguousarray(halves.reshape(numbers.shape))


def _architecture(reader: GGUFReader) -> str:
    name: str = field_of(reader, "general.architecture")
    return name


def field_of(reader: GGUFReader, key: str) -> Any:
    found = reader.get_field(key)
    assert found is not None, key
    return found.contents()


def _config(reader: GGUFReader) -> dict[str, Any]:
    kind = _architecture(reader)

    def of(key: str) -> Any:
        return field_of(reader, f"{kind}.{key}")

    return {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": of("attention.head_count"),
        "num_key_value_heads": of("attention.head_count_kv"),
        "head_dim": of("attention.key_length" if kind == "qwen3" else "rope.dimension_count"),
        "rms_norm_eps": round(of("attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": of("rope.freq_base"),
        "tie_word_embeddings": True,
        "vocab_size": of("vocab_size"),
        "max_position_embeddings": of("context_length"),
        "torch_dtype": "float16",
        "bos_token_id": field_of(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": [field_of(reader, f"tokenizer.ggml.{role}_token_id") for role in ("padding", "eos")],
    }


def _tokenizer(reader: GGUFReader) -> dict[str, Any]:
    tokens, types = (field_of(reader, f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    is_qwen = field_of(reader, "tokenizer.ggml.pre") == "qwen2"
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": not is_qwen}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": tokens[i], **special} for i, kind in enumerate(types) if kind == CONTROL
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split if is_qwen else digits, level]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field_of(reader, "tokenizer.ggml.merges")],
        },
    }


def _tokenizer_config(reader: GGUFReader) -> dict[str, Any]:
    def token(role: str) -> str:
        text: str = tokens[field_of(reader, f"tokenizer.ggml.{role}_token_id")]
        return text

    tokens = field_of(reader, "tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": token("eos"),
        "pad_token": token("padding"),
        "model_max_length": field_of(reader, f"{_architecture(reader)}.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": field_of(reader, "tokenizer.chat_template"),
    }
