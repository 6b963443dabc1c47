"""A GGUF model's vocabulary, through llama.cpp's own tokenizer.

Texts are cut behind special tokens first, because llama.cpp's time grows with the square of their number in a
text.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import groupby
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib

from localspec.backends.base import FimTokens, TypedNames
from localspec.errors import EngineError

WHOLE = 4096
"""bytes of a text up to which it is not cut: it has too few special tokens to take long"""
MOST = 64
"""special tokens in one piece"""
TAKEN = b"\xff"
"""the byte that replaces the text of a special token: it does not occur in UTF-8"""
BEGINNING = 4
"""first bytes of special tokens that are searched for before the tokens themselves, often thousands"""


class Strips(NamedTuple):
    """The sides on which a special token strips blanks."""

    left: bool = False
    right: bool = False


class Partition:
    """Cuts texts behind ``special`` tokens, given by their texts.

    llama.cpp takes the texts of special tokens out of a text one after the other, the longest first
    (``tokenizer_st_partition`` in src/llama-vocab.cpp), and tokenizes each text between them separately. The
    text that follows a special token therefore gives the same tokens when tokenized alone. The special tokens
    are found here by the same rules, in time linear in the text for each special token that occurs.
    """

    def __init__(self, special: Mapping[bytes, Strips]) -> None:
        self._special = special

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Cut ``data`` into pieces whose tokens, one after the other, are those of the whole."""
        begin, count = 0, 0
        for end, next in self._ends(data) if len(data) > WHOLE else ():
            count += 1
            if end - begin >= WHOLE or count == MOST:
                yield data[begin:end]
                begin, count = next, 0
        if begin < len(data):
            yield data[begin:]

    def _ends(self, data: bytes) -> list[tuple[int, int]]:
        """(end, beginning of what follows) of each special token in ``data``, in order."""
        present = [text for text in self._candidates(data) if text in data]
        if len(self._ambiguous.intersection(present)) > 1:
            return []
        left, ends = bytearray(data), list[tuple[int, int]]()
        for text in present:
            strips, taken = self._special[text], TAKEN * len(text)
            at = left.find(text)
            while at >= 0:
                end = at + len(text)
                left[at:end] = taken
                if strips.left:
                    _strip(left, range(at - 1, -1, -1))
                ends.append((end, _strip(left, range(end, len(left))) if strips.right else end))
                at = left.find(text, end)
        return sorted(ends)

    def _candidates(self, data: bytes) -> list[bytes]:
        """The special tokens whose first bytes occur in ``data``, the longest first."""
        found = [text for first, texts in self._by_beginning.items() if first in data for text in texts]
        return sorted(found, key=len, reverse=True)

    @cached_property
    def _by_beginning(self) -> dict[bytes, list[bytes]]:
        found = defaultdict[bytes, list[bytes]](list)
        for text in self._special:
            found[text[:BEGINNING]].append(text)
        return found

    @cached_property
    def _ambiguous(self) -> frozenset[bytes]:
        """Special tokens of equal length that can overlap: llama.cpp's order of these is not reproduced."""
        by_length = groupby(sorted(self._special, key=len), key=len)
        return frozenset(text for _, texts in by_length for text in _overlapping(list(texts)))


def _strip(left: bytearray, places: range) -> int:
    """Replace blanks at ``places`` up to the first other byte; return the place of that byte."""
    for place in places:
        if not left[place : place + 1].isspace():
            return place
        left[place : place + 1] = TAKEN
    return places.stop


def _overlapping(texts: list[bytes]) -> Iterator[bytes]:
    """The ``texts``, all of one length, whose ends are beginnings of others."""
    begins, ends = defaultdict[bytes, set[bytes]](set), defaultdict[bytes, set[bytes]](set)
    for text in texts:
        for n in range(1, len(text)):
            begins[text[:n]].add(text)
            ends[text[-n:]].add(text)
    for part in begins.keys() & ends.keys():
        if len(both := begins[part] | ends[part]) > 1:
            yield from both


NO_TOKEN = -1
CONTROL, USERS = lib.LLAMA_TOKEN_ATTR_CONTROL, lib.LLAMA_TOKEN_ATTR_USER_DEFINED
NAMED = CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
"""tokens that llama.cpp finds by their texts if it parses special ones; user-defined ones it always finds"""
MARK = re.compile(r"[<\[].*[>\]]")
"""the name of a user-defined token that is markup where a chat template has it"""
STRIPS = lib.LLAMA_TOKEN_ATTR_LSTRIP | lib.LLAMA_TOKEN_ATTR_RSTRIP


class LlamaVocabulary:
    """See :class:`localspec.backends.base.Vocabulary`."""

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
        self._typed = self._typed_names()
        self._pieces: dict[int, bytes] = {}
        self._partitions = {special: self._partition(special=special) for special in (False, True)}

    @cached_property
    def longest(self) -> int | None:
        bounded = lib.llama_vocab_type(self._vocab) in (lib.LLAMA_VOCAB_TYPE_SPM, lib.LLAMA_VOCAB_TYPE_BPE)
        if not bounded or any(attr & STRIPS for attr in self._attrs):
            return None
        # A token's text in the file is at least as long as the text it stands for.
        written = [(len(lib.llama_vocab_get_text(self._vocab, t)), t) for t in range(self.size)]
        longest = 1
        for length, token in sorted(written, reverse=True):
            if length <= longest:
                break
            longest = max(longest, len(self.text_of(token)))
        return longest

    def _partition(self, *, special: bool) -> Partition:
        """A partition by the tokens that llama.cpp finds by their texts, with special ones or without."""
        found = (
            (t, attr)
            for t, attr in enumerate(self._attrs)
            if (attr & (NAMED | USERS) if special else attr & USERS and not attr & NAMED)
        )
        return Partition(
            {
                lib.llama_vocab_get_text(self._vocab, t): Strips(
                    bool(attr & lib.LLAMA_TOKEN_ATTR_LSTRIP), bool(attr & lib.LLAMA_TOKEN_ATTR_RSTRIP)
                )
                for t, attr in found
            }
        )

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

    def _typed_names(self) -> TypedNames:
        found = (t for t in self.special_tokens | self.marks if self._attrs[t] & USERS)
        return TypedNames({token: self.text_of(token).decode("utf-8", "replace") for token in found})

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            return self._encode(text, special=True)
        return self._typed.encode(text, partial(self._encode, special=False))

    def _encode(self, text: str, *, special: bool) -> list[int]:
        pieces = self._partitions[special].pieces(text.encode("utf-8", "replace"))
        return [token for piece in pieces for token in self._tokens(piece, special=special)]

    def _tokens(self, data: bytes, *, special: bool) -> list[int]:
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
