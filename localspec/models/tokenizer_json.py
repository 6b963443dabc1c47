"""A bounded reader of ``tokenizer.json``: the tokens of a model directory, as its files write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models.bounded import REMEDY, decode_json, read_bounded
from localspec.models.directory import number_of, read_config
from localspec.models.gguf import MAX_ARRAY

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
TEMPLATE, TEMPLATE_IN_JSON = "chat_template.jinja", "chat_template.json"
MAX_TOKENIZER = 256 * 1024 * 1024
"""bytes of a file of tokens, also of settings for those: old ones hold all added tokens"""
MAX_SETTINGS = 64 * 1024 * 1024
"""bytes of other settings, of which each may become twenty in memory"""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=MAX_ARRAY)]
Pieces = Annotated[list[tuple[str, float]], msgspec.Meta(max_length=MAX_ARRAY)]


class TokenTexts(NamedTuple):
    """Tokens by id: the model's own, encoded, and the added ones, literal; ``size`` is the first id that the
    model cannot produce, None where its configuration has none."""

    own: dict[int, str]
    added: dict[int, str]
    byte_level: bool
    size: int | None


class _Added(msgspec.Struct):
    content: str


class _Numbered(_Added):
    id: TokenId


class _Model(msgspec.Struct):
    """A vocabulary: a table of ids for BPE, a list of pieces and their scores for Unigram."""

    vocab: dict[str, TokenId] | Pieces


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[_Numbered] | None = None
    normalizer: msgspec.Raw = msgspec.Raw(b"")
    pre_tokenizer: msgspec.Raw = msgspec.Raw(b"")
    decoder: msgspec.Raw = msgspec.Raw(b"")


class _Settings(msgspec.Struct):
    added_tokens_decoder: dict[TokenId, _Added] | None = None


def read_tokenizer(path: Path) -> TokenTexts:
    """The tokens of the model directory ``path``.

    Raises :class:`ModelInvalid` where ``tokenizer.json`` is missing or invalid.
    """
    try:
        data = read_bounded(path / TOKENIZER, MAX_TOKENIZER)
    except ModelNotFound:
        what = f"{path} is not a usable model directory: it has no {TOKENIZER}"
        raise ModelInvalid(what, REMEDY) from None
    tokenizer = decode_json(data, _Tokenizer, path / TOKENIZER)
    vocab, parts = tokenizer.model.vocab, (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder)
    if isinstance(vocab, dict):
        own = {token: text for text, token in vocab.items()}
    else:
        own = {token: text for token, (text, _) in enumerate(vocab)}
    return TokenTexts(
        own=own,
        added=_added_tokens(path) | {token.id: token.content for token in tokenizer.added_tokens or ()},
        byte_level=any(b'"ByteLevel"' in bytes(part) for part in parts),
        size=number_of(read_config(path), "vocab_size"),
    )


def read_settings(path: Path, name: str = SETTINGS) -> dict[str, Any]:
    """Return a directory's optional file of settings; one that cannot be read says nothing."""
    try:
        found = json.loads(read_bounded(path / name, MAX_SETTINGS))
    except (ModelError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of_token(token: Any) -> str | None:
    """The text of a token, which files give plainly or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def chat_template(path: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template of a model directory with these ``settings``; None if it has none."""
    try:
        return read_bounded(path / TEMPLATE, MAX_SETTINGS).decode()
    except (ModelError, UnicodeDecodeError):
        in_json = read_settings(path, TEMPLATE_IN_JSON)
        found = in_json.get("chat_template") or settings.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _added_tokens(path: Path) -> dict[int, str]:
    """The added tokens of ``tokenizer_config.json``, which may be more than ``tokenizer.json`` has."""
    try:
        data = read_bounded(path / SETTINGS, MAX_TOKENIZER)
    except ModelNotFound:
        return {}
    added = decode_json(data, _Settings, path / SETTINGS).added_tokens_decoder or {}
    return {token: text.content for token, text in added.items()}
