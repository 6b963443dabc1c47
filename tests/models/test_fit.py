"""The memory that a model needs by its headers: real files, the bundled pair."""

from __future__ import annotations

import json
from pathlib import Path

import llama_cpp.llama_cpp as lib
import pytest
from msgspec.structs import replace

from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.engine.load import load
from localspec.errors import ModelTooLarge
from localspec.models.directory import ModelDirectory
from localspec.models.division import part_of
from localspec.models.fit import needs_of
from localspec.models.model import model_at
from localspec.models.needs import PROCESS, Needs, Size, context_size, size_of
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB
from tests.mlx_pair import mlx_model
from tests.models.ggufs import DRAFT, TARGET, gguf, ints, string, tensor, uint32

SMALL = EngineConfig(n_ctx=256, parallel=1)
MIB = 1 << 20


def test_what_the_bundled_pair_needs_is_what_llama_cpp_takes() -> None:
    needs = needs_of(model_at(TARGET), model_at(DRAFT), SMALL)
    assert needs.weights == TARGET.stat().st_size
    assert needs.mapped == needs.weights + DRAFT.stat().st_size
    with load(n_ctx=256, parallel=1) as engine:
        assert isinstance(engine.target, LlamaCppBackend)
        assert engine.target.capabilities.n_ctx == 256
        model = engine.target._lib_model
        width = lib.llama_model_n_embd(model) // lib.llama_model_n_head(model)
        numbers = 2 * width * lib.llama_model_n_head_kv(model) * lib.llama_model_n_layer(model)
        assert needs.cells == 256 * 2 * numbers
    assert needs.draft > DRAFT.stat().st_size
    assert needs.overhead > PROCESS
    assert needs.total == needs.weights + needs.cells + needs.draft + needs.overhead


@pytest.mark.parametrize("config", [EngineConfig(), EngineConfig(n_ctx=8192, prefill_chunk=512)])
@pytest.mark.parametrize("sequences", [1, 4])
def test_the_forwards_of_a_gpu_take_what_llama_cpp_allocates(config: EngineConfig, sequences: int) -> None:
    n_ctx = context_size(2048, config)
    lib_model = native.load_model(str(TARGET), config, None)
    context = native.new_context(lib_model, config, n_ctx=n_ctx, n_sequences=sequences)
    lib.llama_free(context)
    lib.llama_model_free(lib_model)
    *_, found = (line for line in native._recent if "CPU compute buffer size" in line)
    part = part_of(model_at(TARGET), replace(config, gpu_layers=99))
    planned = part.needs(None, replace(config, parallel=sequences)).overhead
    assert 0.9 < float(found.split()[-2]) * MIB / planned < 1.1


def test_cells_grow_with_the_context_and_shrink_with_their_bits() -> None:
    one = needs_of(model_at(TARGET), None, SMALL)
    assert one.draft == 0
    assert needs_of(model_at(TARGET), None, EngineConfig(n_ctx=512, parallel=1)).cells == 2 * one.cells
    assert needs_of(model_at(TARGET), None, EngineConfig(n_ctx=256, parallel=4)).cells == 4 * one.cells
    assert (
        needs_of(model_at(TARGET), None, EngineConfig(n_ctx=256, parallel=1, kv_bits=8)).cells
        == one.cells * 34 // 64
    )


def test_there_are_as_many_sequences_as_weights_and_memory_allow() -> None:
    def sequences(cell: int, free: int | None = None) -> int:
        return Size(2000 * MB, cell, 0, None).needs(None, EngineConfig(n_ctx=1000), free).sequences

    assert [sequences(cell) for cell in (0, 100_000, 400_000, 900_000)] == [4, 4, 2, 1]
    assert [sequences(200_000, free * MB) for free in (2900, 2500, 10)] == [4, 2, 1]


def test_weights_count_once_and_repacked_ones_are_not_mapped(tmp_path: Path) -> None:
    tensors = [
        tensor("token_embd.weight", (256, 8), 12),
        tensor("blk.0.attn_q.weight", (256, 8), 12, offset=8 * 144),
        tensor("output.weight", (256, 8), 14, offset=16 * 144),
    ]
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf([string("general.architecture", "llama")], tensors, b"\0" * 4096))
    size = size_of(model_at(path), SMALL)
    assert size.weights == path.stat().st_size - 8 * 144 and size.mapped == size.weights - 8 * 144


def test_both_formats_of_a_model_have_the_same_cells_but_only_one_is_mapped() -> None:
    directory = needs_of(model_at(mlx_model("stdlib-6m")), None, SMALL)
    assert directory.cells == needs_of(model_at(TARGET), None, SMALL).cells
    assert directory.weights > 0 and directory.mapped == 0


def test_of_a_model_over_several_machines_a_share_is_planned() -> None:
    model = model_at(mlx_model("stdlib-6m"))
    alone = needs_of(model, None, SMALL)
    half = needs_of(model, None, replace(SMALL, nodes=("mac-b",)))
    assert half.cells == alone.cells // 2
    assert isinstance(model.header, ModelDirectory)
    embedding = 2 * 256 * model.header.n_tokens  # of half precision
    assert half.weights == pytest.approx(embedding + (alone.weights - embedding) / 2, rel=0.02)
    gguf = model_at(TARGET)
    assert needs_of(gguf, None, replace(SMALL, nodes=("mac-b",))) == needs_of(gguf, None, SMALL)


def llama(path: Path, *values: bytes) -> Path:
    path.write_bytes(gguf([string("general.architecture", "llama"), *values]))
    return path


SHAPE = [
    uint32("llama.block_count", 3),
    uint32("llama.embedding_length", 64),
    uint32("llama.attention.head_count", 4),
]


def test_what_a_header_does_not_tell_counts_as_nothing(tmp_path: Path) -> None:
    def cells(*values: bytes) -> int:
        return needs_of(model_at(llama(tmp_path / "m.gguf", *values)), None, SMALL).cells

    assert cells() == 0
    assert cells(*SHAPE) == 256 * 2 * 2 * 64 * 3
    assert cells(*SHAPE, uint32("llama.attention.head_count_kv", 2)) == 256 * 2 * 2 * 32 * 3
    assert cells(*SHAPE, uint32("llama.attention.key_length", 32)) == 256 * 2 * 2 * 128 * 3
    assert cells(*SHAPE, ints("llama.attention.head_count_kv", [0, 2, 0])) == 256 * 2 * 2 * 16 * 2
    assert cells(*SHAPE, string("llama.attention.head_count_kv", "many")) == 0


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, 3),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, 2),
        ({"kv_lora_rank": 512}, 0),
        ({"num_key_value_heads": None}, 0),
    ],
)
def test_of_a_directory_only_layers_with_a_cell_for_every_token_count(
    tmp_path: Path, changes: dict[str, object], layers: int
) -> None:
    for file in mlx_model("stdlib-6m").iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tmp_path / "config.json").read_text())
    shape = {"num_hidden_layers": 3, "head_dim": 16, "num_key_value_heads": 2}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**config, **shape, **changes}))
    assert needs_of(model_at(tmp_path), None, SMALL).cells == 256 * 2 * 2 * 32 * layers


def test_the_context_is_the_models_own_within_bounds() -> None:
    large, none = EngineConfig(n_ctx=100_000), EngineConfig()
    assert [context_size(trained, none) for trained in (None, 8, 2048, 131_072)] == [8192, 64, 2048, 8192]
    assert context_size(2048, large) == 100_000


def test_too_large_names_every_number() -> None:
    needs = Needs(weights=40 * MB, cells=30 * MB, draft=20 * MB, overhead=10 * MB)
    needs.check("m", 100 * MB)
    with pytest.raises(ModelTooLarge) as caught:
        needs.check("m", 100 * MB - MB // 10)
    assert caught.value.message == (
        "m needs 100.0 MB of memory (weights 40.0 MB, KV cache 30.0 MB, draft 20.0 MB, overhead 10.0 MB); "
        "99.9 MB are free"
    )
    assert "models unload" in caught.value.remedy
