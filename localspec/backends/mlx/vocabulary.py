"""An MLX model's vocabulary, through the tokenizer in its directory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from localspec.backends.base import FimTokens
from localspec.backends.typed import TypedNames
from localspec.errors import InvalidOptions, ModelError, ModelInvalid
from localspec.models.bounded import read_bounded
from localspec.models.description import FIM_PREFIXES
from localspec.models.directory import ModelDirectory
from localspec.models.fingerprint import directory_tokens
from localspec.protocol.options import Options, parse_options

# Special tokens by their texts, as llama.cpp finds them (src/llama-vocab.cpp): a model should end its
# answers alike, and fill in alike, on both backends.
ENDS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>"),
    *("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~["),
    "<｜end▁of▁sentence｜>",
)
SUFFIXES = (
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>"),
    *("<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"),
)
MIDDLES = (
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>"),
    *("<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"),
)
PADS = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
REPOS = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
SEPARATORS = ("<|file_sep|>",)
SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
"""of gpt-oss: special, but part of the text"""
MAX_SETTINGS = 64 * 1024 * 1024
"""bytes of a file of settings; old ones hold all added tokens"""
SHORTENED = {"NoneType": 1, "NFC": 3}
"""times that a text can be longer than what is left of it, by normalizers of which that is known"""
RECOMMENDED = ("temperature", "top_k", "top_p", "min_p")
"""of generation_config.json, under the names that options have, too"""


class MlxVocabulary:
    """See :class:`localspec.backends.base.Vocabulary`. ``defaults`` is what the model's author
    recommends. Raises :class:`ModelInvalid` for a tokenizer that cannot be used."""

    def __init__(self, directory: ModelDirectory, size: int) -> None:
        self.size = size
        self._texts = dict(directory_tokens(directory.path))
        self._tokenizer = _tokenizer(directory.path)
        self._turn = threading.Lock()
        settings = _json(directory.path / "tokenizer_config.json")
        generation = _json(directory.path / "generation_config.json")
        # What the model has no row for, it can neither say nor be told.
        found = self._tokenizer.get_added_tokens_decoder()
        added = {id: token for id, token in found.items() if id < size}
        self._names = {token.content: id for id, token in added.items()}
        self.eos = self._names.get(_content(settings.get("eos_token")) or "")
        self.bos = self._bos(_content(settings.get("bos_token")))
        self.fim = self._fim()
        configured = (directory.config.get("eos_token_id"), generation.get("eos_token_id"))
        self.end_tokens = self._ends(
            id for ids in configured for id in (ids if isinstance(ids, list) else [ids])
        )
        shown = {self._names.get(name) for name in SHOWN}
        special = {id for id, token in added.items() if token.special} - shown
        self.special_tokens = frozenset(special) | self.end_tokens
        marks = self.special_tokens.union(token for token in self.fim or () if token is not None)
        typed = {id: added[id].content for id in marks if id in added and not added[id].special}
        self._typed = TypedNames(typed)
        self.chat_template = _chat_template(directory.path, settings)
        self.defaults = _recommended(generation)

    @cached_property
    def longest(self) -> int | None:
        """Known where the tokenizer drops no text and has no token for what it does not know."""
        times = SHORTENED.get(type(self._tokenizer.normalizer).__name__)
        added = self._tokenizer.get_added_tokens_decoder().values()
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        if times is None or unknown is not None or any(token.lstrip or token.rstrip for token in added):
            return None
        return times * max(map(len, self._texts.values()), default=1)

    def _bos(self, name: str | None) -> int | None:
        """The token that the tokenizer itself puts before a text."""
        first = self._tokenizer.encode("", add_special_tokens=True).ids[:1]
        return first[0] if first and first[0] == self._names.get(name or "") else None

    def _first(self, names: Iterable[str]) -> int | None:
        return next((self._names[name] for name in names if name in self._names), None)

    def _fim(self) -> FimTokens | None:
        prefix, suffix, middle = (self._first(names) for names in (FIM_PREFIXES, SUFFIXES, MIDDLES))
        if prefix is None or suffix is None or middle is None:
            return None
        return FimTokens(prefix, suffix, middle, self._first(REPOS), self._first(SEPARATORS))

    def _ends(self, configured: Iterable[Any]) -> frozenset[int]:
        found = {id for id in (self.eos, *configured) if type(id) is int and 0 <= id < self.size}
        found |= {self._names[name] for name in ENDS if name in self._names}
        found |= {id for names in (PADS, REPOS, SEPARATORS) if (id := self._first(names)) is not None}
        if {"<|return|>", "<|call|>", "<|end|>"} <= self._names.keys():
            # In gpt-oss it ends a part of the answer only.
            found.discard(self._names["<|end|>"])
        return frozenset(found)

    def encode(self, text: str, *, special: bool) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()
        with self._turn:
            self._tokenizer.encode_special_tokens = not special
            return self._encode(clean) if special else self._typed.encode(clean, self._encode)

    def _encode(self, text: str) -> list[int]:
        # Of a batch, even of one, other threads go on meanwhile.
        (found,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        ids: list[int] = found.ids
        return ids

    def piece(self, token: int) -> bytes:
        return b"" if token in self.special_tokens else self._texts.get(token, b"")

    def text_of(self, token: int) -> bytes:
        # Rows of the model that no token has: so llama.cpp's converter calls them.
        return self._texts.get(token) or b"[PAD%d]" % token


def _tokenizer(directory: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        # As they were set for training; a prompt is neither cut nor filled up without a word.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    except Exception as error:
        # The library raises a plain Exception for anything it does not like.
        raise ModelInvalid(
            f"the tokenizer of {directory} cannot be used: {error}",
            "Give a directory with a complete tokenizer.json.",
        ) from None


def _json(path: Path) -> dict[str, Any]:
    """An optional file; one that cannot be read says nothing."""
    try:
        found = json.loads(read_bounded(path, MAX_SETTINGS))
    except (ModelError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _content(token: Any) -> str | None:
    """The text of a token, which files give plainly or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _chat_template(directory: Path, settings: dict[str, Any]) -> str | None:
    try:
        return read_bounded(directory / "chat_template.jinja", MAX_SETTINGS).decode()
    except (ModelError, UnicodeDecodeError):
        found = settings.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _recommended(generation: dict[str, Any]) -> Options:
    """The author's sampling settings; what makes no sense is passed over."""
    if generation.get("do_sample") is False:
        return Options()
    found = {name: generation[name] for name in RECOMMENDED if generation.get(name) is not None}
    try:
        return parse_options(found)
    except InvalidOptions:
        return Options()
