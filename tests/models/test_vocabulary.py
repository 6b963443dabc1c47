"""Vocabularies as model files have them, and the draft models that are compatible with a target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.errors import ModelInvalid, TokenizerMismatch
from localspec.models.catalogue import BUNDLED_DRAFT
from localspec.models.directory import read_directory
from localspec.models.gguf import read_header
from localspec.models.vocabulary import FIRST_COMPARED, MAX_SIZE_DIFFERENCE, Tokens, check_pair, read_tokens
from tests.mlx_pair import mlx_model
from tests.models.ggufs import DRAFT, gguf, string, tensor, vocabulary, write

WORDS = [b"w%d" % n for n in range(200)]


def test_both_formats_tell_the_same() -> None:
    gguf, mlx = read_tokens(DRAFT), read_tokens(mlx_model(BUNDLED_DRAFT))
    assert gguf.texts == mlx.texts and gguf.size == mlx.size == 8192
    assert read_header(DRAFT, texts=False).n_tokens == 8192
    assert read_directory(mlx_model(BUNDLED_DRAFT)).n_tokens == 8192


def test_rows_without_a_token_count_and_have_no_text(tmp_path: Path) -> None:
    found = read_tokens(write(tmp_path, gguf(vocabulary(["<s>", "</s>", "a", "b", "[PAD4]"], model="gpt2"))))
    assert found.size == 5
    assert found.texts == {0: b"<s>", 1: b"</s>", 2: b"a", 3: b"b"}


def test_a_model_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gguf([string("general.architecture", "toy")], [tensor("x", (8,))], b"\0" * 32))
    with pytest.raises(ModelInvalid, match="has no vocabulary"):
        read_tokens(path)


def tokens(words: Sequence[bytes]) -> Tokens:
    return Tokens(dict(enumerate(words)), len(words))


def pair(target: Sequence[bytes], draft: Sequence[bytes]) -> str:
    return check_pair(tokens(target), tokens(draft))


def changed(at: int) -> list[bytes]:
    return [*WORDS[:at], b"other", *WORDS[at + 1 :]]


@pytest.mark.parametrize("size", [200, 500])
def test_where_all_tokens_are_equal_rows_without_one_do_not_matter(size: int) -> None:
    assert check_pair(tokens(WORDS), tokens(tuple(WORDS))._replace(size=size)) == "exact"


@pytest.mark.parametrize("at", range(FIRST_COMPARED))
def test_the_first_ids_may_differ(at: int) -> None:
    assert pair(WORDS, changed(at)) == "compatible"


@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        *(
            (changed(at), f"token {at} is b'other', the target's is b'w{at}'$")
            for at in (FIRST_COMPARED, 100, 199)
        ),
        ([*WORDS[:50], *reversed(WORDS[50:])], "token 50 is"),
        ([*WORDS[:6], b"w" * 1_000_000, *WORDS[7:]], r"token 6 is b.w{100}.…, the target.s is b.w6.$"),
    ],
    ids=["first", "middle", "last", "several", "long"],
)
def test_the_first_later_id_that_differs_is_named(draft: list[bytes], sentence: str) -> None:
    with pytest.raises(TokenizerMismatch, match=sentence):
        pair(WORDS, draft)


def test_sizes_may_differ_a_little() -> None:
    longer = [*WORDS, *(b"more" for _ in range(MAX_SIZE_DIFFERENCE))]
    assert pair(longer, WORDS) == "compatible"
    assert pair(WORDS, longer) == "compatible"


def test_sizes_may_not_differ_more() -> None:
    longer = [*WORDS, *(b"more" for _ in range(MAX_SIZE_DIFFERENCE + 1))]
    with pytest.raises(TokenizerMismatch, match="vocabulary has 200 tokens, the target's 329$"):
        pair(longer, WORDS)
    with pytest.raises(TokenizerMismatch, match="vocabulary has 329 tokens, the target's 200$"):
        pair(WORDS, longer)
