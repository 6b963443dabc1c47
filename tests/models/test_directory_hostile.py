"""Damaged and hostile directories: only a ModelError comes out, quickly, and little memory is taken."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models import directory, tokenizer_json, weights
from localspec.models.bundled import BUNDLED_DRAFT
from localspec.models.directory import read_directory
from localspec.models.fingerprint import directory_tokens
from localspec.models.weights import read_weights
from tests.mlx_pair import mlx_model
from tests.models import directories
from tests.models.directories import entry, safetensors

GIGABYTE = 10**9
DEEP = b"[" * 100_000 + b"]" * 100_000


def refused(folder: Path, **files: object) -> ModelInvalid:
    """Return the error for a small model with these files (``config`` for ``config.json``, …)."""
    names = {
        "config": "config.json",
        "weights": "model.safetensors",
        "index": directories.INDEX,
        "tokenizer": "tokenizer.json",
        "settings": "tokenizer_config.json",
    }
    path = directories.write(folder, {names[name]: content for name, content in files.items()})
    with pytest.raises(ModelInvalid) as caught:
        read_directory(path)
        directory_tokens(path)
    return caught.value


# --- directories that are none -----------------------------------------------------------------


def test_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    for name in ("none", "a\0b", "n" * 5000):
        with pytest.raises(ModelNotFound, match="there is no directory"):
            read_directory(tmp_path / name)


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = directories.write(tmp_path) / "config.json"
    with pytest.raises(ModelInvalid, match="is a file, not a model directory"):
        read_directory(path)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("config", "is not a usable model directory: it has no config.json"),
        ("weights", "is not a usable model directory: it has no *.safetensors file"),
        ("tokenizer", "is not a usable model directory: it has no tokenizer.json"),
    ],
)
def test_an_incomplete_directory_is_refused(tmp_path: Path, file: str, problem: str) -> None:
    error = refused(tmp_path, **{file: None})
    assert problem in error.message
    assert error.remedy == "Give a complete model directory; `-m bundled` always works."


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, config=directories.CONFIG | {"model_file": "model.py"})
    assert "needs code of its own" in error.message
    assert "never run" in error.remedy


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in this file system")
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", directories.INDEX, "tokenizer.json"])
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path, file: str) -> None:
    path = directories.write(tmp_path, {file: None})
    os.mkfifo(path / file)
    with pytest.raises(ModelInvalid, match="not a plain file"):
        read_directory(path)
        directory_tokens(path)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", directories.INDEX, "tokenizer.json"])
def test_links_to_nothing_and_to_themselves_are_refused(tmp_path: Path, file: str) -> None:
    path = directories.write(tmp_path, {file: None})
    for target in ("gone", file):
        (path / file).symlink_to(target)
        with pytest.raises(ModelError):
            read_directory(path)
            directory_tokens(path)
        (path / file).unlink()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("file", ["", "config.json", "model.safetensors", "tokenizer.json"])
def test_what_may_not_be_read_is_refused(tmp_path: Path, file: str) -> None:
    path = directories.write(tmp_path)
    (path / file).chmod(0)
    with pytest.raises(ModelError):
        read_directory(path)
        directory_tokens(path)
    (path / file).chmod(0o700)


# --- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["config", "index", "tokenizer", "settings"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"5", b'{"a": "\xff"}x', b"\xff\xfe{}", DEEP, b'{"a": ' + DEEP + b"}"],
    ids=["empty", "cut", "list", "null", "number", "tail", "utf-16", "deep", "deeper"],
)
def test_what_is_no_json_object_is_refused_naming_the_file(tmp_path: Path, file: str, content: bytes) -> None:
    message = refused(tmp_path, **{file: content}).message
    name = {"settings": "tokenizer_config"}.get(file, file)
    assert f"{name}.json" in message or directories.INDEX in message


def test_text_of_a_configuration_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    assert "is not valid JSON" in refused(tmp_path, config=b'{"model_type": "\xff"}').message


def test_a_number_of_endless_digits_is_refused(tmp_path: Path) -> None:
    assert "is not valid JSON" in refused(tmp_path, config=b'{"vocab_size": 1' + b"0" * 5000 + b"}").message


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("config.json", directory.MAX_CONFIG),
        (directories.INDEX, directory.MAX_INDEX),
        ("tokenizer.json", tokenizer_json.MAX_TOKENIZER),
        ("tokenizer_config.json", tokenizer_json.MAX_TOKENIZER),
    ],
)
def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path, name: str, limit: int) -> None:
    path = directories.write(tmp_path, {name: b"{}"})
    os.truncate(path / name, 5 * GIGABYTE)
    tracemalloc.start()
    try:
        assert f"longer than {limit} bytes" in refused_again(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def refused_again(path: Path) -> str:
    with pytest.raises(ModelInvalid) as caught:
        read_directory(path)
        directory_tokens(path)
    return caught.value.message


# --- weights that lie --------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\0" * 7, struct.pack("<Q", 1), struct.pack("<q", -1) + b"{}"])
def test_a_header_longer_than_its_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "its header is longer than the file" in refused(tmp_path, weights=content).message


def test_a_header_longer_than_the_limit_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = directories.write(tmp_path, {"model.safetensors": struct.pack("<Q", weights.MAX_HEADER + 1)})
    os.truncate(path / "model.safetensors", 5 * GIGABYTE)
    tracemalloc.start()
    try:
        assert f"its header is longer than {weights.MAX_HEADER} bytes" in refused_again(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b'{"a": 5}',
        b'{"a": {}}',
        b'{"a": {"\xff": 1}}',
        b'{"a": ' + DEEP + b"}",
        b'{"\\ud800": 1}',
    ],
)
def test_a_header_of_other_json_is_refused(tmp_path: Path, header: bytes) -> None:
    assert "does not contain the expected JSON" in refused(tmp_path, weights=safetensors(header)).message


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (entry("F16", (4,), 0, 8) | {"dtype": "Q4"}, "has the unknown type 'Q4'"),
        (entry("F16", (1,) * 9, 0, 2), "has 9 dimensions"),
        (entry("F16", (4,), 0, 6), "of shape [4] has 6 bytes"),
        (entry("F16", (4,), 8, 0), "of shape [4] has -8 bytes"),
        (entry("F16", (2**62, 2**62, 2**62), 0, 8), "has 8 bytes"),
        (entry("F16", (4,), 1, 9), "it is truncated: tensor 'a' ends 1 bytes past its end"),
        (entry("F16", (2**61,), 0, 2**62), "it is truncated"),
        (entry("F16", (-4,), 0, 8), "does not contain the expected JSON"),
        (entry("F16", (-2, -2), 0, 8), "does not contain the expected JSON"),
        (entry("F16", (4,), -8, 0), "does not contain the expected JSON"),
        (entry("F16", (2**63,), 0, 8), "does not contain the expected JSON"),
        (entry("F16", (10**400,), 0, 8), "does not contain the expected JSON"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(tmp_path: Path, lie: object, problem: str) -> None:
    assert problem in refused(tmp_path, weights=safetensors({"a": lie}, b"\0" * 8)).message


def test_a_name_without_end_is_refused(tmp_path: Path) -> None:
    content = safetensors({"a" * 1025: entry("F16", (4,), 0, 8)}, b"\0" * 8)
    assert (
        "a tensor's name has 1025 characters; 1024 are the most" in refused(tmp_path, weights=content).message
    )


@pytest.mark.parametrize(
    ("kind", "shape", "length"), [("F4", (4,), 2), ("F6_E2M3", (4,), 3), ("F32", (), 4), ("F16", (0, 9), 0)]
)
def test_odd_types_and_shapes_that_fit_are_read(
    tmp_path: Path, kind: str, shape: tuple[int, ...], length: int
) -> None:
    content = safetensors({"a": entry(kind, shape, 0, length)}, b"\0" * length)
    path = directories.write(tmp_path, {"model.safetensors": content})
    assert read_weights(path / "model.safetensors").tensors["a"].type == kind


def test_real_weights_are_refused_wherever_they_are_cut(tmp_path: Path) -> None:
    whole = (mlx_model(BUNDLED_DRAFT) / "model.safetensors").read_bytes()
    path = directories.write(tmp_path, {"model.safetensors": whole})
    read_directory(path)
    for length in sorted({*range(0, len(whole), 40_009), *range(64), len(whole) - 1}, reverse=True):
        os.truncate(path / "model.safetensors", length)
        assert refused_again(path), length


# --- indices that lie --------------------------------------------------------------------------


def indexed(folder: Path, name: str) -> str:
    return refused(folder, index={"weight_map": {"weight": name}}).message


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    message = indexed(tmp_path, "model-00002-of-00002.safetensors")
    assert f"'model-00002-of-00002.safetensors', which {directories.INDEX} names, is missing" in message


@pytest.mark.parametrize(
    "name",
    ["../toy/model.safetensors", "/etc/passwd", "deep/model.safetensors", "..\\model.safetensors", "", "..",
     "config.json"],
)  # fmt: skip
def test_a_name_of_no_weights_beside_the_index_is_refused(tmp_path: Path, name: str) -> None:
    assert "which is not a safetensors file beside it" in indexed(tmp_path, name)


@pytest.mark.parametrize("name", ["a\0.safetensors", "n" * 5000 + ".safetensors"])
def test_a_strange_name_is_missing(tmp_path: Path, name: str) -> None:
    message = indexed(tmp_path, name)
    assert "is missing" in message
    assert len(message) < 1000


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 5}}, {"weight_map": None}])
def test_an_index_of_other_content_is_refused(tmp_path: Path, index: object) -> None:
    assert "does not contain the expected JSON" in refused(tmp_path, index=index).message


# --- vocabularies that lie ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"model": {}},
        {"model": {"vocab": 5}},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {"vocab": {"a": -1}}},
        {"model": {"vocab": {"a": 2_000_000}}},
        {"model": {"vocab": {"a": 2**64}}},
        {"model": {"vocab": [["a"]]}},
        {"model": {"vocab": ["a", -1.0]}},
        {"model": {"vocab": {}}, "added_tokens": [{"id": -1, "content": "a"}]},
        {"model": {"vocab": {}}, "added_tokens": [{"id": 2**40, "content": "a"}]},
        {"model": {"vocab": {}}, "added_tokens": [{"id": 1}]},
        {"model": {"vocab": {}}, "added_tokens": {"a": 1}},
        {"model": {"vocab": {"\ud800": 0}}},
    ],
)
def test_a_tokenizer_of_other_content_is_refused(tmp_path: Path, content: object) -> None:
    assert "does not contain the expected JSON" in refused(tmp_path, tokenizer=content).message


@pytest.mark.parametrize(
    "decoder",
    [{"x": {"content": "a"}}, {"-1": {"content": "a"}}, {"9" * 30: {"content": "a"}}, {"1": "a"}, []],
)
def test_tokenizer_settings_of_other_content_are_refused(tmp_path: Path, decoder: object) -> None:
    message = refused(tmp_path, settings={"added_tokens_decoder": decoder}).message
    assert "does not contain the expected JSON" in message


# --- flipped bytes -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


flips = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.slow
@settings(deadline=5000, max_examples=300)
@given(flips=flips, file=st.sampled_from(["config.json", "model.safetensors", "tokenizer.json"]))
def test_flipped_bytes_give_a_model_or_a_model_error(
    scratch: Path, flips: list[tuple[int, int]], file: str
) -> None:
    path = directories.write(scratch)
    damaged = bytearray((path / file).read_bytes())
    for place, byte in flips:
        damaged[place % len(damaged)] = byte
    (path / file).write_bytes(damaged)
    try:
        model, tokens = read_directory(path), directory_tokens(path)
    except ModelError:
        return
    assert model.parameters <= 8 * model.size
    assert tokens == sorted(tokens)
