"""A GGUF model's vocabulary, through llama.cpp's own tokenizer."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import llama_cpp.llama_cpp as lib

from localspec.backends.base import FimTokens, TypedNames, any_of
from localspec.errors import EngineError, InvalidOptions

NO_TOKEN = -1
CONTROL, USERS = lib.LLAMA_TOKEN_ATTR_CONTROL, lib.LLAMA_TOKEN_ATTR_USER_DEFINED
FOUND = CONTROL | USERS | lib.LLAMA_TOKEN_ATTR_UNKNOWN
"""the kinds of tokens that llama.cpp finds by their texts"""
MOST_NAMES = 1 << 14
"""such tokens in a text: llama.cpp's time is square in their number, a second for so many"""
MARK = re.compile(r"[<\[].*[>\]]")
"""the name of a user-defined token that is markup where a chat template has it"""


class LlamaVocabulary:
    """See :class:`localspec.backends.base.ModelVocabulary`."""

    def __init__(self, model: Any) -> None:
        self._vocab = lib.llama_model_get_vocab(model)
        self._model = model
        self.size: int = lib.llama_vocab_n_tokens(self._vocab)
        bos = lib.llama_vocab_bos(self._vocab)
        self.bos: int | None = bos if lib.llama_vocab_get_add_bos(self._vocab) and bos != NO_TOKEN else None
        self.bos_text = "" if bos == NO_TOKEN else self.text_of(bos).decode("utf-8", "replace")
        eos = lib.llama_vocab_eos(self._vocab)
        self.eos: int | None = None if eos == NO_TOKEN else eos
        self.end_tokens = frozenset(t for t in range(self.size) if lib.llama_vocab_is_eog(self._vocab, t))
        self._attrs = [lib.llama_vocab_get_attr(self._vocab, t) for t in range(self.size)]
        control = (t for t, attr in enumerate(self._attrs) if attr & CONTROL)
        self.special_tokens = self.end_tokens | frozenset(control)
        self.fim = self._fim()
        self.marks = frozenset(self._marks())
        typed = (t for t in self.special_tokens | self.marks if self._attrs[t] & USERS)
        self._typed = TypedNames({token: self.text_of(token).decode("utf-8", "replace") for token in typed})
        self._pieces: dict[int, bytes] = {}

    @property
    def chat_template(self) -> str | None:
        source = lib.llama_model_chat_template(self._model, None)
        return source.decode("utf-8", "replace") if source else None

    def _fim(self) -> FimTokens | None:
        prefix, suffix, middle, repo, sep = (
            None if (token := token_of(self._vocab)) == NO_TOKEN else token
            for token_of in (
                lib.llama_vocab_fim_pre,
                lib.llama_vocab_fim_suf,
                lib.llama_vocab_fim_mid,
                lib.llama_vocab_fim_rep,
                lib.llama_vocab_fim_sep,
            )
        )
        if prefix is None or suffix is None or middle is None:
            return None
        return FimTokens(prefix, suffix, middle, repo, sep)

    def _marks(self) -> Iterator[int]:
        yield from (token for token in self.fim or () if token is not None)
        template = self.chat_template or ""
        for token in (token for token, attr in enumerate(self._attrs) if attr & USERS):
            name = self.text_of(token).decode("utf-8", "replace")
            if MARK.fullmatch(name) and name in template:
                yield token

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            return self._encode(text, special=True)
        return self._typed.encode(text, partial(self._encode, special=False))

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """The texts by which llama.cpp finds special tokens."""
        named = (token for token, attr in enumerate(self._attrs) if attr & FOUND)
        return re.compile(any_of(sorted(self.text_of(token).decode("utf-8", "replace") for token in named)))

    def _encode(self, text: str, *, special: bool) -> list[int]:
        if len(text) > MOST_NAMES and sum(1 for _ in self._names.finditer(text)) > MOST_NAMES:
            raise InvalidOptions(f"the text has more than {MOST_NAMES} special tokens", "Send it in parts.")
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        while True:
            tokens = (ctypes.c_int32 * room)()
            n = lib.llama_tokenize(self._vocab, data, len(data), tokens, room, False, special)
            if n >= 0:
                return tokens[:n]
            if -n <= room:
                raise EngineError(f"llama.cpp cannot tokenize a text of {len(data)} bytes")
            room = -n

    def piece(self, token: int) -> bytes:
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._text(token, special=False)
        return known

    def text_of(self, token: int) -> bytes:
        return self._text(token, special=True)

    def _text(self, token: int, *, special: bool) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            room = -n
