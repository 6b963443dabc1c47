"""Damaged and hostile directories: only a ModelError comes out, quickly, and little memory is taken."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models import directory
from localspec.models.catalogue import BUNDLED_DRAFT
from localspec.models.directory import read_directory
from localspec.models.vocabulary import directory_tokens
from tests.mlx_pair import mlx_model
from tests.models import directories
from tests.models.directories import entry, safetensors
from tests.mutation import FLIPS, flipped, little_memory

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


# --- directories that are none -----------------------------------------------------------------


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


# --- JSON --------------------------------------------------------------------------------------


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


# --- weights that lie --------------------------------------------------------------------------


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


# --- indices and vocabularies that lie ---------------------------------------------------------

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


# --- flipped bytes -----------------------------------------------------------------------------


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
