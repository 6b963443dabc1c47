"""Reading a vocabulary from a model's files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from localspec.errors import ModelError, ModelInvalid
from localspec.models.catalogue import BUNDLED_DRAFT
from localspec.models.directory import read_directory
from localspec.models.gguf import read_header
from localspec.models.vocabulary import Tokens, read_tokens
from tests.mlx_pair import mlx_model
from tests.models import directories
from tests.models.ggufs import BOOL, DRAFT, gguf, string, tensor, uint32, value, vocabulary, write

WORDS = ["<s>", "</s>", "a", "b", "[PAD4]"]
BOS, EOS = uint32("tokenizer.ggml.bos_token_id", 0), uint32("tokenizer.ggml.eos_token_id", 1)


def flag(on: bool) -> bytes:
    return value("tokenizer.ggml.add_bos_token", BOOL, struct.pack("<?", on))


def tokens_of(folder: Path, *values: bytes, model: str = "gpt2") -> Tokens:
    return read_tokens(write(folder, gguf([*vocabulary(WORDS, model=model), *values])))


def test_both_formats_tell_the_same() -> None:
    gguf, mlx = read_tokens(DRAFT), read_tokens(mlx_model(BUNDLED_DRAFT))
    assert gguf.texts == mlx.texts and gguf.size == mlx.size == 8192
    assert gguf.eos == mlx.eos == 2 and gguf.bos is mlx.bos is None
    assert read_header(DRAFT, texts=False).n_tokens == 8192
    assert read_directory(mlx_model(BUNDLED_DRAFT)).n_tokens == 8192


def test_rows_without_a_token_count_and_have_no_text(tmp_path: Path) -> None:
    found = tokens_of(tmp_path)
    assert found.size == 5
    assert found.texts == {0: b"<s>", 1: b"</s>", 2: b"a", 3: b"b"}


@pytest.mark.parametrize(
    ("model", "values", "bos"),
    [
        ("gpt2", (BOS, EOS), None),
        ("gpt2", (BOS, EOS, flag(True)), 0),
        ("gpt2", (BOS, EOS, string("tokenizer.ggml.pre", "llama-bpe")), 0),
        ("gpt2", (BOS, EOS, string("tokenizer.ggml.pre", "llama-bpe"), flag(False)), None),
        ("gpt2", (BOS, EOS, string("tokenizer.ggml.pre", "qwen2")), None),
        ("llama", (BOS, EOS), 0),
        ("llama", (BOS, EOS, flag(False)), None),
        ("llama", (EOS,), None),
    ],
)
def test_whether_bos_is_added_is_llama_cpps_rule(
    tmp_path: Path, model: str, values: tuple[bytes, ...], bos: int | None
) -> None:
    found = tokens_of(tmp_path, *values, model=model)
    assert (found.kind, found.bos, found.eos) == (model, bos, 1)


@pytest.mark.parametrize(
    ("settings", "bos", "eos"),
    [
        ({}, None, None),
        ({"bos_token": "<|end|>", "eos_token": {"content": "<|end|>"}}, 3, 3),
        ({"bos_token": "<|end|>", "add_bos_token": False, "eos_token": None}, None, None),
        ({"bos_token": "no token", "eos_token": 7}, None, None),
    ],
)
def test_a_directory_tells_it_in_its_settings(
    tmp_path: Path, settings: dict[str, object], bos: int | None, eos: int | None
) -> None:
    path = directories.write(tmp_path, {"tokenizer_config.json": settings})
    found = read_tokens(path)
    assert (found.kind, found.bos, found.eos) == ("byte-level", bos, eos)
    assert found.texts == {0: b"a", 1: b"b", 2: b" c", 3: b"<|end|>"} and found.size == 4


def test_a_model_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gguf([string("general.architecture", "toy")], [tensor("x", (8,))], b"\0" * 32))
    with pytest.raises(ModelInvalid, match="has no vocabulary"):
        read_tokens(path)


@pytest.mark.parametrize("content", [None, b"", b"GGUF", b"GGUF\3\0\0\0" + b"\xff" * 16])
def test_a_spoilt_or_missing_file_is_a_typed_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "none.gguf" if content is None else write(tmp_path, content)
    with pytest.raises(ModelError):
        read_tokens(path)
