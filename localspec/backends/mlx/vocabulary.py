"""An MLX model's vocabulary, through the tokenizer in its directory."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from localspec.backends.base import FimTokens, TypedNames, parse_recommended
from localspec.errors import ModelInvalid
from localspec.models.directory import ModelDirectory, chat_template, read_settings, text_of_token
from localspec.models.vocabulary import FIM_PREFIXES, directory_tokens
from localspec.protocol.options import Options

# Special tokens by their texts, as llama.cpp finds them (src/llama-vocab.cpp), so that a model ends its
# answers, and fills in the middle, the same way on both backends.
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
"""tokens of gpt-oss that are special, but part of the text"""
RECOMMENDED = ("temperature", "top_k", "top_p", "min_p")
"""names in generation_config.json that are also names of options"""


class MlxVocabulary:
    """See :class:`localspec.backends.base.ModelVocabulary`. ``defaults`` is what the model's author
    recommends. Raises :class:`ModelInvalid` for a tokenizer that cannot be used."""

    def __init__(self, directory: ModelDirectory, size: int) -> None:
        self.size = size
        self._texts = directory_tokens(directory.path)
        self._tokenizer = _tokenizer(directory.path)
        self._turn = threading.Lock()
        settings = read_settings(directory.path)
        generation = read_settings(directory.path, "generation_config.json")
        # Tokens without a row in the model can neither be generated nor fed.
        found = self._tokenizer.get_added_tokens_decoder()
        added = {id: token for id, token in found.items() if id < size}
        self._names = {token.content: id for id, token in added.items()}
        self.eos = self._names.get(text_of_token(settings.get("eos_token")) or "")
        self.bos_text = text_of_token(settings.get("bos_token")) or ""
        self.bos = self._bos(self.bos_text)
        self.fim = self._fim()
        configured = (directory.config.get("eos_token_id"), generation.get("eos_token_id"))
        self.end_tokens = self._ends(
            id for ids in configured for id in (ids if isinstance(ids, list) else [ids])
        )
        shown = {self._names[name] for name in SHOWN if name in self._names}
        special = {id for id, token in added.items() if token.special} - shown
        self.special_tokens = frozenset(special) | self.end_tokens
        self.marks = frozenset(token for token in self.fim or () if token is not None) | shown
        marks = self.special_tokens | self.marks
        typed = {id: added[id].content for id in marks if id in added and not added[id].special}
        self._typed = TypedNames(typed)
        self.chat_template = chat_template(directory.path, settings)
        self.defaults = _read_recommended(generation)

    def _bos(self, name: str) -> int | None:
        """The token ``name``, if the tokenizer itself puts it before a text."""
        first = self._tokenizer.encode("", add_special_tokens=True).ids[:1]
        return first[0] if first and first[0] == self._names.get(name) else None

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
            # In gpt-oss it ends only a part of the answer.
            found.discard(self._names["<|end|>"])
        return frozenset(found)

    def encode(self, text: str, *, special: bool) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()
        with self._turn:
            self._tokenizer.encode_special_tokens = not special
            return self._encode(clean) if special else self._typed.encode(clean, self._encode)

    def _encode(self, text: str) -> list[int]:
        # encode_batch, even of one text, lets other threads run meanwhile.
        (found,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        ids: list[int] = found.ids
        return ids

    def piece(self, token: int) -> bytes:
        return b"" if token in self.special_tokens else self._texts.get(token, b"")

    def text_of(self, token: int) -> bytes:
        # Rows of the model without a token are named as llama.cpp's converter names them.
        return self._texts.get(token) or b"[PAD%d]" % token


def _tokenizer(directory: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        # These settings are left over from training; a prompt must not be truncated or padded silently.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    except Exception as error:
        # The library raises a plain Exception for every error.
        raise ModelInvalid(
            f"the tokenizer of {directory} cannot be used: {error}",
            "Give a directory with a complete tokenizer.json.",
        ) from None


def _read_recommended(generation: dict[str, Any]) -> Options:
    is_greedy = generation.get("do_sample") is False
    return Options() if is_greedy else parse_recommended({name: generation.get(name) for name in RECOMMENDED})
