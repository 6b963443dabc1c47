"""The division of a model over devices: layers, experts and sequences that have room."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec.errors import ModelTooLarge
from localspec.models.division import divide_model, part_of, rest_of
from localspec.models.gguf import GgufHeader
from localspec.models.model import Model, model_at
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB
from tests.models.ggufs import TARGET, gguf, string, tensor, uint32

MIB = 1 << 20


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
