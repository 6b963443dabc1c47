"""The vocabularies that llama.cpp's source brings along, written again as ``tokenizer.json``: one
fingerprint for both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.models.fingerprint import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    directory_tokens,
    gguf_tokens,
    vocab_fp,
)
from localspec.models.gguf import read_header
from tests.models import directories

pytestmark = pytest.mark.slow

SOURCE = "LOCALSPEC_LLAMA_CPP_SOURCE"
FAMILIES = ("gpt2", "llama", "gemma4")
"""``tokenizer.ggml.model`` of byte-level and SentencePiece-like vocabularies that generate text"""


def vocabularies() -> list[Path]:
    return sorted(Path(os.environ.get(SOURCE, "/nowhere"), "models").glob("ggml-vocab-*.gguf"))


def test_there_are_vocabularies_to_compare() -> None:
    if SOURCE not in os.environ:
        pytest.skip(f"set {SOURCE} to a source tree of llama.cpp: its models/ggml-vocab-*.gguf are compared")
    assert len(vocabularies()) >= 15


def real_tokens(path: Path) -> tuple[str, list[tuple[int, str, int]]]:
    """The kind of a GGUF vocabulary, and (id, text, type) of what a tokenizer has of it."""
    metadata = read_header(path).metadata
    texts = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type") or (NORMAL,) * len(texts)
    tokens = zip(range(len(texts)), texts, types, strict=True)
    real = [each for each in tokens if each[2] != UNUSED and each[1] != f"[PAD{each[0]}]"]
    return str(metadata["tokenizer.ggml.model"]), real


def own_and_added(tokens: list[tuple[int, str, int]]) -> tuple[dict[str, int], list[tuple[str, bool]]]:
    """The model's own table, up to its last plain token, and all that are added as (text, special)."""
    last = max(token for token, _, kind in tokens if kind not in (CONTROL, USER_DEFINED))
    own = {text: token for token, text, _ in tokens if token <= last}
    return own, [(text, kind == CONTROL) for _, text, kind in tokens if kind in (CONTROL, USER_DEFINED)]


def tokenizers_of(tokenizers: Any, kind: str, own: dict[str, int]) -> Iterator[Any]:
    """Yield the tokenizers package's possible tokenizers for a vocabulary: one, or BPE and Unigram."""
    if kind == "gpt2":
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(own, []))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        yield tokenizer
        return
    unk = "<unk>" if "<unk>" in own else None
    models = [tokenizers.models.BPE(own, [], unk_token=unk, fuse_unk=True, byte_fallback=True)]
    if list(own.values()) == list(range(len(own))):
        pieces = [(text, -float(token)) for text, token in own.items()]
        models.append(tokenizers.models.Unigram(pieces, unk_id=own.get("<unk>"), byte_fallback=True))
    for model in models:
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "▁")
        steps = tokenizers.decoders
        replace = steps.Replace("▁", " ")
        tokenizer.decoder = steps.Sequence([replace, steps.ByteFallback(), steps.Fuse()])
        yield tokenizer


@pytest.mark.parametrize("path", vocabularies(), ids=lambda path: path.stem)
def test_a_real_vocabulary_has_one_fingerprint_in_both_formats(path: Path, tmp_path: Path) -> None:
    kind, tokens = real_tokens(path)
    if kind not in FAMILIES:
        pytest.skip(f"a vocabulary of kind {kind} is of no model that generates text")
    tokenizers = pytest.importorskip("tokenizers")
    own, added = own_and_added(tokens)
    for tokenizer in tokenizers_of(tokenizers, kind, own):
        for text, special in added:
            tokenizer.add_tokens([tokenizers.AddedToken(text, special=special, normalized=False)])
        assert tokenizer.get_vocab() == {text: token for token, text, _ in tokens}
        folder = directories.write(tmp_path)
        tokenizer.save(str(folder / "tokenizer.json"))
        expected = gguf_tokens(read_header(path))
        assert directory_tokens(folder) == expected
        assert vocab_fp(directory_tokens(folder)) == vocab_fp(expected)
