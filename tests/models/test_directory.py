"""Reading a well-formed model directory."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from localspec.errors import ModelInvalid
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET
from localspec.models.directory import (
    ModelDirectory,
    Weight,
    is_directory_model,
    read_directory,
    read_weights,
)
from tests.mlx_pair import mlx_model
from tests.models import directories

BITS = {"group_size": 64, "bits": 4}


@pytest.fixture(scope="module", params=[BUNDLED_DRAFT, BUNDLED_TARGET])
def pair_member(request: pytest.FixtureRequest) -> Path:
    return mlx_model(request.param)


def test_a_directory_with_a_configuration_is_a_model(tmp_path: Path) -> None:
    path = directories.write(tmp_path)
    assert is_directory_model(path)
    assert not is_directory_model(tmp_path)
    assert not is_directory_model(path / "config.json")
    assert not is_directory_model(tmp_path / "nothing")
    assert not is_directory_model(tmp_path / "a\0b")


def test_a_whole_model_is_described(pair_member: Path) -> None:
    model = read_directory(pair_member)
    assert (model.path, model.architecture, model.context) == (pair_member, "qwen3", 2048)
    assert model.weights == (pair_member / "model.safetensors",)
    assert model.size == (pair_member / "model.safetensors").stat().st_size
    assert model.config == json.loads((pair_member / "config.json").read_text("utf-8"))


def test_tensors_are_those_that_the_safetensors_package_reads(pair_member: Path) -> None:
    path = pair_member / "model.safetensors"
    tensors = read_weights(path)[0]
    with safe_open(path, framework="numpy") as file:
        assert tensors.keys() == set(file.keys())
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        assert tensors == {
            name: Weight(piece.get_dtype(), math.prod(piece.get_shape())) for name, piece in slices.items()
        }
    assert read_directory(pair_member).parameters == sum(tensor.elements for tensor in tensors.values())


def described(folder: Path, **changes: Any) -> ModelDirectory:
    """A small model whose configuration has ``changes``."""
    return read_directory(directories.write(folder, {"config.json": directories.CONFIG | changes}))


# --- the configuration -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "architecture", "context"),
    [
        ({"max_position_embeddings": None, "text_config": {"max_position_embeddings": 32}}, "toy", 32),
        *(
            ({"max_position_embeddings": n}, "toy", None)
            for n in ("many", True, 0, -1, 1.5, None, 2**63, [64])
        ),
        *(({"model_type": kind}, "unknown", 64) for kind in (None, 5, ["toy"])),
        ({"model_type": "a\ud800"}, "a?", 64),
        ({"time_step_limit": [0.0, float("inf")]}, "toy", 64),  # what only Python calls JSON
    ],
)
def test_the_architecture_and_context_are_what_can_be_used(
    tmp_path: Path, changes: dict[str, Any], architecture: str, context: int | None
) -> None:
    model = described(tmp_path, **changes)
    assert (model.architecture, model.context) == (architecture, context)


# --- weights -----------------------------------------------------------------------------------


def of_weights(folder: Path, shapes: directories.Shapes, **changes: Any) -> ModelDirectory:
    config = directories.CONFIG | changes
    weights = directories.weights(shapes)
    return read_directory(directories.write(folder, {"config.json": config, "model.safetensors": weights}))


def test_the_quantisation_is_the_type_of_most_weights(tmp_path: Path) -> None:
    model = of_weights(tmp_path, {"norm": ("F32", (64,)), "weight": ("BF16", (16, 16)), "one": ("F32", ())})
    assert (model.quantisation, model.parameters) == ("BF16", 321)


def quantised(module: str, inputs: int, outputs: int, bits: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    groups = ("F16", (outputs, inputs // 64))
    packed = ("U32", (outputs, inputs * bits // 32))
    return {f"{module}.weight": packed, f"{module}.scales": groups, f"{module}.biases": groups}


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_quantised_weights_are_counted_one_by_one(tmp_path: Path, bits: int) -> None:
    shapes = quantised("layer", 128, 8, bits) | {"layer.bias": ("F16", (8,)), "norm.weight": ("F16", (128,))}
    model = of_weights(tmp_path, shapes, quantization={"group_size": 64, "bits": bits})
    assert (model.quantisation, model.parameters) == (f"{bits}bit", 128 * 8 + 8 + 128)


@pytest.mark.parametrize(
    "settings", [None, [], "4bit", {"bits": 0}, {"bits": -4}, {"bits": "4"}, {"bits": 33}]
)
def test_a_quantisation_that_makes_no_sense_is_none(tmp_path: Path, settings: object) -> None:
    model = of_weights(tmp_path, quantised("layer", 128, 8, 4), quantization=settings)
    assert (model.quantisation, model.parameters) == ("U32", 128 + 16 + 16)


# --- files -------------------------------------------------------------------------------------


def test_split_weights_are_one_model(tmp_path: Path) -> None:
    parts = {
        f"model-0000{n}-of-00002.safetensors": directories.weights({name: ("F16", (4,))})
        for n, name in ((1, "a"), (2, "b"))
    }
    path = directories.write(tmp_path, {"model.safetensors": None, **parts})
    model = read_directory(path)
    assert model.weights == tuple(path / name for name in parts) and model.parameters == 8
    assert model.size == sum(file.stat().st_size for file in model.weights)
    index = {"weight_map": dict(zip("ab", parts, strict=True))}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_directory(path) == model
    model.weights[1].unlink()  # as an interrupted download leaves it
    with pytest.raises(ModelInvalid, match=r"'model-00002-of-00002.safetensors', which .* names, is missing"):
        read_directory(path)


def test_files_may_be_links_as_in_a_download_cache(tmp_path: Path) -> None:
    blobs = directories.write(tmp_path, name="blobs")
    path = tmp_path / "snapshot"
    path.mkdir()
    for file in os.listdir(blobs):
        (path / file).symlink_to(Path("..", "blobs", file))
    assert is_directory_model(path)
    model = read_directory(path)
    assert (model.parameters, model.size) == (10, len(directories.SMALL))
