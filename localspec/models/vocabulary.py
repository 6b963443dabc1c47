"""A model's vocabulary from its files, to compare with another's before either is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from localspec.errors import ModelInvalid, ModelNotFound
from localspec.models.bounded import decode_json, read_bounded
from localspec.models.directory import number_of, read_config
from localspec.models.fingerprint import directory_tokens, gguf_tokens
from localspec.models.gguf import count_tokens, read_header
from localspec.models.model import Model
from localspec.models.pairing import Tokens
from localspec.models.tokenizer_json import MAX_TOKENIZER, SETTINGS, read_tokenizer

BOS_BY_KIND = ("llama", "bert")
BOS_BY_PRETOKENIZER = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken", "chameleon"),
)
"""pre-tokenizers for which llama.cpp adds BOS though the file does not say so (src/llama-vocab.cpp)"""


class _Settings(msgspec.Struct):
    """Values of ``tokenizer_config.json``; a token is a text, or an object with its text and properties."""

    add_bos_token: bool | None = None
    bos_token: Any = None
    eos_token: Any = None


def read_tokens(model: Model) -> Tokens:
    """Read a model's vocabulary for comparison; raises :class:`ModelError`, also where it has none."""
    tokens = _of_directory(model.path) if model.format == "mlx" else _of_file(model.path)
    if not tokens.texts:
        raise ModelInvalid(f"{model.path} has no vocabulary")
    return tokens


def real_tokens(model: Model) -> list[tuple[int, bytes]]:
    """Read (id, bytes) of a model's real tokens, alike in both formats; raises :class:`ModelError`."""
    return directory_tokens(model.path) if model.format == "mlx" else gguf_tokens(read_header(model.path))


def vocabulary_size(model: Model) -> int:
    """The number of tokens in a row of logits, without reading them; raises :class:`ModelError`."""
    if model.format == "mlx":
        return number_of(read_config(model.path), "vocab_size") or len(read_tokens(model).texts)
    return count_tokens(model.path)


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
    settings = _settings(path)
    return Tokens(
        texts=texts,
        size=number_of(read_config(path), "vocab_size") or len(texts),
        kind="byte-level" if read_tokenizer(path).byte_level else "SentencePiece",
        bos=None if settings.add_bos_token is False else _id(ids, settings.bos_token),
        eos=_id(ids, settings.eos_token),
    )


def _settings(path: Path) -> _Settings:
    file = path / SETTINGS
    try:
        return decode_json(read_bounded(file, MAX_TOKENIZER), _Settings, file)
    except ModelNotFound:
        return _Settings()


def _id(ids: Mapping[bytes, int], token: Any) -> int | None:
    text = token.get("content") if isinstance(token, dict) else token
    return ids.get(text.encode("utf-8", "replace")) if isinstance(text, str) else None
