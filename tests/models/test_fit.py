"""The memory that a model needs by its headers, and its division over devices that have less."""

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
from localspec.models.fit import divide_model, needs_of, part_of, rest_of
from localspec.models.gguf import GgufHeader
from localspec.models.model import Model, model_at
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


def places(model: Model, config: EngineConfig, *free_mb: float) -> list[tuple[int, int, int]]:
    """Layers there, layers whose experts stay here, and sequences, with so many MB of other devices."""
    plans = [divide_model(model, config, int(each * MB), 1000 * MB) for each in free_mb]
    return [(plan.gpu_layers, max(0, plan.cpu_experts), plan.parallel) for plan in plans]


def test_what_does_not_fit_on_a_device_is_divided(tmp_path: Path) -> None:
    dense, config = model_at(TARGET), EngineConfig()
    part = part_of(dense, EngineConfig(gpu_layers=99))
    four, two, whole = (part.needs(None, EngineConfig(parallel=n)).total / MB for n in (4, 2, 1))
    assert isinstance(dense.header, GgufHeader)
    most = dense.header.layers + 1
    assert places(dense, config, four, two, whole) == [(most, 0, n) for n in (4, 2, 1)]
    (fewer, none, sequences), least = places(dense, config, whole - 1, 0)
    assert (0 < fewer < most, none, sequences) == (True, 0, 2) and least == (0, 0, 2)
    assert places(dense, replace(config, gpu_layers=2, parallel=3), 1000) == [(2, 0, 3)]
    with pytest.raises(
        ModelTooLarge, match=r"2 layers of .* \(gpu_layers\) need .* where 1\.0 MB can be used"
    ):
        divide_model(dense, replace(config, gpu_layers=2), MB, 1000 * MB)
    with pytest.raises(ModelTooLarge, match=r" need 14\.1 MB of other devices, where 12\.0 MB can"):
        divide_model(dense, replace(config, gpu_layers=2, parallel=4), 12 * MB, 1000 * MB)


def test_the_context_is_lowered_last() -> None:
    dense, config = model_at(TARGET), EngineConfig(parallel=1)
    usual, none = replace(config, n_ctx=2048), replace(config, gpu_layers=0)
    here = rest_of(dense, none).needs(None, usual).total
    one = part_of(dense, replace(config, gpu_layers=2)).needs(None, usual).total

    def planned(config: EngineConfig, there: int, here: int) -> tuple[int, int]:
        plan = divide_model(dense, config, there, here)
        return plan.gpu_layers, plan.n_ctx

    assert planned(config, 0, here) == (0, 0)
    assert planned(config, one, here - 1) == (2, 0)
    assert planned(config, 0, here - 1) == (0, 1024)
    assert planned(usual, 0, here - 1) == (0, 2048)
    assert planned(replace(config, n_ctx=512), 0, 0) == (0, 512)


def test_experts_stay_before_layers_do(tmp_path: Path) -> None:
    names = [
        "output.weight",
        *(f"blk.{i}.{each}.weight" for i in range(3) for each in ("attn_q", "ffn_up_exps")),
    ]
    tensors = [tensor(name, (256, 4096), 0, offset=4 * MIB * i) for i, name in enumerate(names)]
    facts = [string("general.architecture", "llama"), uint32("llama.block_count", 3)]
    (tmp_path / "moe.gguf").write_bytes(gguf(facts, tensors, bytes(4 * MIB * len(names))))
    model, config = model_at(tmp_path / "moe.gguf"), EngineConfig(parallel=1)
    whole = part_of(model, EngineConfig(gpu_layers=4)).needs(None, config).total / MB
    one = 4 * MIB / MB
    assert [rest_of(model, EngineConfig(gpu_layers=4, cpu_experts=n)).weights // MIB for n in (0, 3)] == [
        0,
        12,
    ]
    assert places(model, config, *(whole - n * one for n in range(4))) == [(4, n, 1) for n in range(4)]
    assert places(model, config, whole - 3.5 * one, whole - 4 * one) == [(3, 3, 1), (3, 3, 1)]
    assert places(model, replace(config, cpu_experts=1), whole) == [(4, 1, 1)]
