"""A model's vocabulary from its files, to compare with another's before either is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.errors import ModelInvalid
from localspec.models.directory import ModelDirectory, number_of, read_config
from localspec.models.fingerprint import directory_tokens, gguf_tokens
from localspec.models.gguf import read_header
from localspec.models.model import Model
from localspec.models.pairing import Tokens
from localspec.models.tokenizer_json import read_settings, read_tokenizer, text_of_token

BOS_BY_KIND = ("llama", "bert")
BOS_BY_PRETOKENIZER = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken", "chameleon"),
)
"""pre-tokenizers for which llama.cpp adds BOS though the file does not say so (src/llama-vocab.cpp)"""


def read_tokens(model: Model) -> Tokens:
    """Read a model's vocabulary for comparison; raises :class:`ModelError`, also where it has none."""
    tokens = _of_directory(model.path) if model.format == "mlx" else _of_file(model.path)
    if not tokens.texts:
        raise ModelInvalid(f"{model.path} has no vocabulary")
    return tokens


def vocabulary_size(model: Model) -> int:
    """The number of tokens in a row of logits, without their texts; raises :class:`ModelError`."""
    header = model.header
    if isinstance(header, ModelDirectory):
        return number_of(header.config, "vocab_size") or len(read_tokens(model).texts)
    return header.n_tokens


def _of_file(path: Path) -> Tokens:
    header = read_header(path)
    found = header.metadata
    size = len(found.get("tokenizer.ggml.tokens") or ())
    kind = str(found.get("tokenizer.ggml.model", ""))
    by_default = kind in BOS_BY_KIND or found.get("tokenizer.ggml.pre") in BOS_BY_PRETOKENIZER
    bos = found.get("tokenizer.ggml.bos_token_id")
    return Tokens(
        texts=dict(gguf_tokens(header)),
        size=size,
        kind=kind,
        bos=bos if found.get("tokenizer.ggml.add_bos_token", by_default) else None,
        eos=found.get("tokenizer.ggml.eos_token_id"),
    )


def _of_directory(path: Path) -> Tokens:
    texts = dict(directory_tokens(path))
    ids = {text: token for token, text in texts.items()}
    settings = read_settings(path)
    return Tokens(
        texts=texts,
        size=number_of(read_config(path), "vocab_size") or len(texts),
        kind="byte-level" if read_tokenizer(path).byte_level else "SentencePiece",
        bos=None if settings.get("add_bos_token") is False else _id(ids, settings.get("bos_token")),
        eos=_id(ids, settings.get("eos_token")),
    )


def _id(ids: Mapping[bytes, int], token: Any) -> int | None:
    text = text_of_token(token)
    return None if text is None else ids.get(text.encode("utf-8", "replace"))
