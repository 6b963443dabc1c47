"""Facts of a model's vocabulary that llama.cpp's server reports: its size, its kind, its special tokens."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from localspec.models.description import format_of
from localspec.models.directory import number_of, read_config, read_directory
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.model import signature_of
from localspec.models.template import CHATML, CHATMLS, PLAIN
from localspec.models.tokenizer_json import chat_template, read_settings, read_tokenizer, text_of_token
from localspec.protocol.pairs import Signature

KINDS = {"llama": 1, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6, "test": 7}
"""``enum llama_vocab_type`` by ``tokenizer.ggml.model``; all others are :data:`BPE`"""
NO_VOCABULARY, SPM, BPE = 0, 1, 2
KEPT = 256
"""models whose facts are kept until their files change"""


class Card(NamedTuple):
    """``vocab_type`` is a number of llama.cpp's ``enum llama_vocab_type``."""

    n_vocab: int
    vocab_type: int
    n_embd: int


class Texts(NamedTuple):
    """The texts of the tokens that begin and end texts, empty without one, and the chat template in use."""

    bos: str
    eos: str
    template: str
    quantisation: str


def card_of(path: Path) -> Card:
    """Return a model's card; raises :class:`ModelError`."""
    return _card(path, signature_of(path))


def texts_of(path: Path) -> Texts:
    """Return a model's special texts; raises :class:`ModelError`."""
    return _texts(path, signature_of(path))


@lru_cache(maxsize=KEPT)
def _card(path: Path, _: Signature) -> Card:
    if format_of(path) == "mlx":
        config = read_config(path)
        kind = BPE if read_tokenizer(path).byte_level else SPM
        return Card(number_of(config, "vocab_size") or 0, kind, number_of(config, "hidden_size") or 0)
    header = read_header(path, texts=False)
    kind = header.metadata.get("tokenizer.ggml.model", "none")
    is_none = kind in ("none", "no_vocab")
    vocab_type = NO_VOCABULARY if is_none else KINDS.get(str(kind), BPE)
    n_vocab = header.n_tokens or _number(header.of_architecture("vocab_size"))
    return Card(n_vocab, vocab_type, _number(header.of_architecture("embedding_length")))


@lru_cache(maxsize=4)
def _texts(path: Path, _: Signature) -> Texts:
    if format_of(path) == "mlx":
        settings = read_settings(path)
        bos, eos = (text_of_token(settings.get(f"{name}_token")) or "" for name in ("bos", "eos"))
        template = chat_template(path, settings) or _instead(read_tokenizer(path).added.values())
        return Texts(bos, eos, template, read_directory(path).quantisation)
    header = read_header(path)
    found = header.metadata.get("tokenizer.chat_template")
    if not isinstance(found, str) or not found:
        found = _instead(header.metadata.get("tokenizer.ggml.tokens") or ())
    return Texts(_token(header, "bos"), _token(header, "eos"), found, header.quantisation)


def _instead(tokens: Iterable[str]) -> str:
    """The template of a model that has none of its own."""
    return CHATML if CHATMLS in tokens else PLAIN


def _token(header: GgufHeader, name: str) -> str:
    texts = header.metadata.get("tokenizer.ggml.tokens") or ()
    id = header.metadata.get(f"tokenizer.ggml.{name}_token_id")
    return texts[id] if type(id) is int and 0 <= id < len(texts) else ""


def _number(value: Any) -> int:
    return value if type(value) is int else 0
