"""Texts of a model that llama.cpp's server reports: its special tokens, its chat template."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from localspec.models.description import format_of
from localspec.models.directory import read_directory
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.model import signature_of
from localspec.models.template import CHATML, CHATMLS, PLAIN
from localspec.models.tokenizer_json import chat_template, read_settings, read_tokenizer, text_of_token
from localspec.protocol.pairs import Signature


class Texts(NamedTuple):
    """The texts of the tokens that begin and end texts, empty without one, and the chat template in use."""

    bos: str
    eos: str
    template: str
    quantisation: str


def texts_of(path: Path) -> Texts:
    """Return a model's special texts; raises :class:`ModelError`."""
    return _texts(path, signature_of(path))


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
