"""Reading a model directory; of a hostile one only a ModelError comes out, quickly, in little memory."""

from __future__ import annotations

import itertools
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models import directory
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET
from localspec.models.directory import (
    ModelDirectory,
    Weight,
    is_directory_model,
    read_directory,
    read_weights,
)
from localspec.models.vocabulary import directory_tokens
from tests.mlx_pair import mlx_model
from tests.models import directories
from tests.models.directories import entry, safetensors
from tests.mutation import FLIPS, flipped, little_memory

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


GIGABYTE = 10**9
DEEP = b"[" * 100_000 + b"]" * 100_000


def refused(folder: Path, **files: object) -> ModelInvalid:
    """Return the error for a small model with these files (``config`` for ``config.json``, …)."""
    names = {
        "config": "config.json",
        "weights": "model.safetensors",
        "tokenizer": "tokenizer.json",
        "settings": "tokenizer_config.json",
    }
    return refusal(directories.write(folder, {names[name]: content for name, content in files.items()}))


def refusal(path: Path) -> ModelInvalid:
    with pytest.raises(ModelInvalid) as caught:
        read_directory(path)
        directory_tokens(path)
    return caught.value


def test_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    for name in ("none", "a\0b", "n" * 5000):
        with pytest.raises(ModelNotFound, match="there is no directory"):
            read_directory(tmp_path / name)


COMPLETE = "Give a complete model directory; `-m bundled` always works."


@pytest.mark.parametrize(
    ("file", "content", "problem", "remedy"),
    [
        ("config", None, "is not a usable model directory: it has no config.json", COMPLETE),
        ("weights", None, "is not a usable model directory: it has no *.safetensors file", COMPLETE),
        ("tokenizer", None, "is not a usable model directory: it has no tokenizer.json", COMPLETE),
        ("config", directories.CONFIG | {"model_file": "model.py"}, "needs code of its own", "never run"),
    ],
)
def test_an_incomplete_directory_or_one_with_code_is_refused(
    tmp_path: Path, file: str, content: object, problem: str, remedy: str
) -> None:
    error = refused(tmp_path, **{file: content})
    assert problem in error.message and remedy in error.remedy


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pipe_or_a_link_that_leads_nowhere_is_refused(tmp_path: Path, file: str) -> None:
    """A pipe without waiting for its writer."""
    path = directories.write(tmp_path, {file: None})
    for target in ("gone", file):
        (path / file).symlink_to(target)
        with pytest.raises(ModelError):
            read_directory(path)
            directory_tokens(path)
        (path / file).unlink()
    os.mkfifo(path / file)
    assert "not a plain file" in refusal(path).message


@pytest.mark.parametrize("file", ["config", "tokenizer", "settings"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"5", b'{"a": "\xff"}x', b"\xff\xfe{}", DEEP, b'{"a": ' + DEEP + b"}"],
    ids=["empty", "cut", "list", "null", "number", "tail", "utf-16", "deep", "deeper"],
)
def test_what_is_no_json_object_is_refused_naming_the_file(tmp_path: Path, file: str, content: bytes) -> None:
    message = refused(tmp_path, **{file: content}).message
    name = {"settings": "tokenizer_config"}.get(file, file)
    assert f"{name}.json" in message


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("config.json", directory.MAX_CONFIG),
        ("tokenizer.json", directory.MAX_TOKENIZER),
        ("tokenizer_config.json", directory.MAX_TOKENIZER),
        ("model.safetensors", directory.MAX_WEIGHTS_HEADER),
    ],
)
def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path, name: str, limit: int) -> None:
    path = directories.write(tmp_path, {name: struct.pack("<Q", limit + 1)})
    os.truncate(path / name, 5 * GIGABYTE)
    with little_memory():
        assert f"longer than {limit} bytes" in refusal(path).message


def test_huge_settings_are_not_read(tmp_path: Path) -> None:
    path = directories.write(tmp_path)
    os.truncate(path / directory.SETTINGS, directory.MAX_SETTINGS + 1)
    with little_memory():
        assert directory.read_settings(path) == {}


def lying(tensor: object, name: str = "a") -> bytes:
    return safetensors({name: tensor}, b"\0" * 8)


JSON = "does not contain the expected JSON"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *((each, "its header is longer than the file") for each in (b"", b"\0" * 7, struct.pack("<Q", 1))),
        (struct.pack("<q", -1) + b"{}", "its header is longer than the file"),
        *((safetensors(each), JSON) for each in (b"", b"{", b"[]", b'{"a": 5}', b'{"a": {}}')),
        *((safetensors(each), JSON) for each in (b'{"a": {"\xff": 1}}', b'{"\\ud800": 1}')),
        (safetensors(b'{"a": ' + DEEP + b"}"), JSON),
        (lying(entry("F16", (4,), 0, 8) | {"dtype": "Q4"}), "has the unknown type 'Q4'"),
        (lying(entry("F16", (4,), 0, 6)), "of shape [4] has 6 bytes"),
        (lying(entry("F16", (4,), 8, 0)), "of shape [4] has -8 bytes"),
        (lying(entry("F16", (2**62, 2**62, 2**62), 0, 8)), "has 8 bytes"),
        (lying(entry("F16", (4,), 1, 9)), "it is truncated: tensor 'a' ends 1 bytes past its end"),
        (lying(entry("F16", (2**61,), 0, 2**62)), "it is truncated"),
        *((lying(entry("F16", (n,), 0, 8)), JSON) for n in (-4, 2**63, 10**400)),
        (lying(entry("F16", (-2, -2), 0, 8)), JSON),
        (lying(entry("F16", (4,), -8, 0)), JSON),
    ],
    ids=itertools.count(),
)
def test_weights_that_lie_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    assert problem in refused(tmp_path, weights=content).message


def test_real_weights_are_refused_wherever_they_are_cut(tmp_path: Path) -> None:
    whole = (mlx_model(BUNDLED_DRAFT) / "model.safetensors").read_bytes()
    path = directories.write(tmp_path, {"model.safetensors": whole})
    read_directory(path)
    for length in sorted({*range(0, len(whole), 40_009), *range(64), len(whole) - 1}, reverse=True):
        os.truncate(path / "model.safetensors", length)
        assert refusal(path).message, length


VOCABULARIES: list[Any] = [
    5,
    {"a": "0"},
    {"a": -1},
    {"a": 2_000_000},
    {"a": 2**64},
    {"\ud800": 0},
    [["a"]],
    ["a", -1.0],
]
ADDED: list[Any] = [[{"id": -1, "content": "a"}], [{"id": 2**40, "content": "a"}], [{"id": 1}], {"a": 1}]
DECODERS: list[Any] = [*({name: {"content": "a"}} for name in ("x", "-1", "9" * 30)), {"1": "a"}, []]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer", {}),
        ("tokenizer", {"model": {}}),
        *(("tokenizer", {"model": {"vocab": each}}) for each in VOCABULARIES),
        *(("tokenizer", {"model": {"vocab": {}}, "added_tokens": each}) for each in ADDED),
        *(("settings", {"added_tokens_decoder": each}) for each in DECODERS),
    ],
    ids=itertools.count(),
)
def test_json_of_other_content_is_refused(tmp_path: Path, file: str, content: object) -> None:
    assert JSON in refused(tmp_path, **{file: content}).message


@settings(deadline=5000, max_examples=300)
@given(flips=FLIPS, file=st.sampled_from(["config.json", "model.safetensors", "tokenizer.json"]))
def test_flipped_bytes_give_a_model_or_a_model_error(
    scratch: Path, flips: list[tuple[int, int]], file: str
) -> None:
    path = directories.write(scratch)
    (path / file).write_bytes(flipped((path / file).read_bytes(), flips))
    try:
        model, tokens = read_directory(path), directory_tokens(path)
    except ModelError:
        return
    assert model.parameters <= 8 * model.size
    assert list(tokens) == sorted(tokens)
