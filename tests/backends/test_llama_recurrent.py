"""llama.cpp with a model whose state cannot go back: a tiny Mamba of random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.backends.base import Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.config import EngineConfig
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model

WIDTH, INNER, LAYERS, RANK, KERNEL, STATE = 64, 128, 2, 4, 4, 16


def write_mamba(path: Path) -> None:
    """With the tokenizer of the bundled models."""
    fields = gguf.GGUFReader(bundled_model(BUNDLED_TARGET, "gguf")).fields
    writer = gguf.GGUFWriter(path, "mamba")
    for name, field in fields.items():
        if name.startswith("tokenizer."):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, *inner)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(LAYERS)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    writer.add_layer_norm_rms_eps(1e-5)
    random = np.random.default_rng(0)
    layer: dict[str, tuple[int, ...]] = {
        "ssm_in.weight": (2 * INNER, WIDTH),
        "ssm_conv1d.weight": (INNER, KERNEL),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (RANK + 2 * STATE, INNER),
        "ssm_dt.weight": (INNER, RANK),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, STATE),
        "ssm_d": (INNER,),
        "ssm_out.weight": (WIDTH, INNER),
        "attn_norm.weight": (WIDTH,),
    }
    shapes = {f"blk.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    shapes["token_embd.weight"] = (len(fields["tokenizer.ggml.tokens"].contents()), WIDTH)
    shapes["output_norm.weight"] = (WIDTH,)
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32)
        writer.add_tensor(name, -abs(values) if name.endswith("ssm_a") else 0.1 * values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppBackend]:
    path = tmp_path_factory.mktemp("mamba") / "mamba.gguf"
    write_mamba(path)
    backend = LlamaCppBackend(path, EngineConfig(n_ctx=4096, parallel=2, prefill_chunk=2000))
    yield backend
    backend.free()


def test_who_cannot_go_back_does_not_give_up_in_the_middle(mamba: LlamaCppBackend) -> None:
    assert mamba.capabilities.obstacle
    tokens = [300 + i % 500 for i in range(2000)]
    undisturbed, disturbed = mamba.open(), mamba.open()
    expected = mamba.forward([Span(undisturbed, tokens, 1)]).rows(0, 1)
    mamba.hurry(True)
    found = mamba.forward([Span(disturbed, tokens, 1)]).rows(0, 1)
    mamba.hurry(False)
    assert (found == expected).all() and mamba.length(disturbed) == len(tokens)
    mamba.close(undisturbed)
    mamba.close(disturbed)
