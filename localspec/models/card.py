"""Texts of a model that llama.cpp's server reports: its special tokens, its chat template."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from localspec.models.directory import is_directory_model, read_directory
from localspec.models.gguf import read_header
from localspec.models.template import CHATML, CHATMLS, PLAIN
from localspec.models.tokenizer_json import chat_template, read_settings, read_tokenizer, text_of_token


class Texts(NamedTuple):
    """The texts of the tokens that begin and end texts, empty without one, and the chat template in use."""

    bos: str
    eos: str
    template: str
    quantisation: str


def texts_of(path: Path) -> Texts:
    """Return a model's special texts; raises :class:`ModelError`."""
    tokens: Iterable[str]
    if is_directory_model(path):
        settings = read_settings(path)
        bos, eos = (text_of_token(settings.get(f"{name}_token")) or "" for name in ("bos", "eos"))
        template, quantisation = chat_template(path, settings), read_directory(path).quantisation
        tokens = () if template else read_tokenizer(path).added.values()
    else:
        header = read_header(path)
        quantisation, found = header.quantisation, header.metadata.get("tokenizer.chat_template")
        template = found if isinstance(found, str) else None
        tokens = texts = header.metadata.get("tokenizer.ggml.tokens") or ()
        ids = (header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
        bos, eos = (texts[id] if type(id) is int and 0 <= id < len(texts) else "" for id in ids)
    return Texts(bos, eos, template or (CHATML if CHATMLS in tokens else PLAIN), quantisation)
