"""The vocabularies of llama.cpp's source, and small models of random weights that have them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

SOURCE = "LOCALSPEC_LLAMA_CPP_SOURCE"
HEAD, FEED_FORWARD = 32, 64


def vocabulary_file(name: str) -> Path:
    """``ggml-vocab-NAME.gguf``; skips the test where that is not at hand."""
    path = Path(os.environ.get(SOURCE, "/nowhere"), "models", f"ggml-vocab-{name}.gguf")
    if not path.exists():
        pytest.skip(f"set {SOURCE} to a source tree of llama.cpp: its {path.name} is used")
    return path


def random_model(
    path: Path, name: str, *, width: int, renamed: Mapping[int, str] = MappingProxyType({})
) -> Path:
    """A Qwen3 model of two layers with a real vocabulary, some of it ``renamed``; what it writes is noise."""
    gguf = pytest.importorskip("gguf")
    fields = {
        key: [field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None]
        for key, field in gguf.GGUFReader(vocabulary_file(name)).fields.items()
        if key.startswith("tokenizer.ggml.")
    }
    for token, text in renamed.items():
        fields["tokenizer.ggml.tokens"][0][token] = text
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(2)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    for key, value in fields.items():
        writer.add_key_value(key, *value)
    for tensor, weights in _weights(len(fields["tokenizer.ggml.tokens"][0]), width):
        writer.add_tensor(tensor, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(vocabulary: int, width: int) -> list[tuple[str, Any]]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return (rng.standard_normal((rows, columns), np.float32) * 0.02).astype(np.float16)

    found: list[tuple[str, Any]] = [
        ("token_embd.weight", matrix(vocabulary, width)),
        ("output_norm.weight", np.ones(width, np.float32)),
    ]
    for layer in range(2):
        sides = {
            "attn_q": (2 * HEAD, width),
            "attn_k": (HEAD, width),
            "attn_v": (HEAD, width),
            "attn_output": (width, 2 * HEAD),
            "ffn_gate": (FEED_FORWARD, width),
            "ffn_up": (FEED_FORWARD, width),
            "ffn_down": (width, FEED_FORWARD),
        }
        ones = {"attn_norm": width, "ffn_norm": width, "attn_q_norm": HEAD, "attn_k_norm": HEAD}
        found += [(f"blk.{layer}.{name}.weight", np.ones(n, np.float32)) for name, n in ones.items()]
        found += [(f"blk.{layer}.{name}.weight", matrix(*side)) for name, side in sides.items()]
    return found
