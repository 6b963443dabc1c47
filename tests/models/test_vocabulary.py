"""Reading a vocabulary from a model's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ModelInvalid
from localspec.models.catalogue import BUNDLED_DRAFT
from localspec.models.directory import read_directory
from localspec.models.gguf import read_header
from localspec.models.vocabulary import read_tokens
from tests.mlx_pair import mlx_model
from tests.models.ggufs import DRAFT, gguf, string, tensor, vocabulary, write

WORDS = ["<s>", "</s>", "a", "b", "[PAD4]"]


def test_both_formats_tell_the_same() -> None:
    gguf, mlx = read_tokens(DRAFT), read_tokens(mlx_model(BUNDLED_DRAFT))
    assert gguf.texts == mlx.texts and gguf.size == mlx.size == 8192
    assert read_header(DRAFT, texts=False).n_tokens == 8192
    assert read_directory(mlx_model(BUNDLED_DRAFT)).n_tokens == 8192


def test_rows_without_a_token_count_and_have_no_text(tmp_path: Path) -> None:
    found = read_tokens(write(tmp_path, gguf(vocabulary(WORDS, model="gpt2"))))
    assert found.size == 5
    assert found.texts == {0: b"<s>", 1: b"</s>", 2: b"a", 3: b"b"}


def test_a_model_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gguf([string("general.architecture", "toy")], [tensor("x", (8,))], b"\0" * 32))
    with pytest.raises(ModelInvalid, match="has no vocabulary"):
        read_tokens(path)
