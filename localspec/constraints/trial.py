"""Trials of grammars in a process of its own, which ends in place of the worker.

A call of the library cannot be interrupted, and its own limits do not hold everywhere: a chain of 3,000 rules
uses up the stack, and the common part of a few expressions takes minutes and gigabytes.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from localspec.child import limit_time, serve

if TYPE_CHECKING:  # its module takes a child longer to import than all else
    from localspec.backends.base import ModelVocabulary

LIMITS = LLParserLimits(
    verbose_errors=False, max_grammar_size=100_000, initial_lexer_fuel=250_000, step_lexer_fuel=100_000
)
"""the library's own bounds on the sizes of a grammar and on the work for one position; with its defaults a
million forced letters take 2 s at the beginning and 0.3 s within an answer, where other requests wait"""
Special = tuple[tuple[int, bytes], ...]


def name_tokens(vocabulary: ModelVocabulary) -> tuple[int, tuple[int, ...], Special]:
    """Return what a trial needs of a vocabulary: its size, its end tokens, and the texts of special ones."""
    special = tuple((token, vocabulary.text_of(token)) for token in sorted(vocabulary.special_tokens))
    return vocabulary.size, tuple(sorted(vocabulary.end_tokens)), special


class _Bytes:
    """A vocabulary of single bytes, with the special tokens and the size of another one."""

    def __init__(self, size: int, ends: tuple[int, ...], special: Special) -> None:
        single, named = (bytes((byte,)) for byte in range(256)), dict(special)
        self.tokens = [named[i] if i in named else next(single, b"") for i in range(size)]
        self.special_token_ids, self.bos_token_id, self.eos_token_id = list(named), None, min(ends)

    def __call__(self, text: bytes) -> list[int]:
        return []


@lru_cache(maxsize=1)
def _tokenizer(size: int, ends: tuple[int, ...], special: Special) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes(size, ends, special)), size, list(ends))


def compile_grammar(work: tuple[tuple[int, tuple[int, ...], Special], str, float]) -> bytes:
    """Compile a grammar, whether it is refused or not: for a :class:`Child`, which ends if that takes more
    than some seconds of processor time, or its memory."""
    tokens, grammar, seconds = work
    tokenizer = _tokenizer(*tokens)
    limit_time(seconds)
    LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS).compute_bitmask()
    return b""


if __name__ == "__main__":
    os.nice(5)
    serve(compile_grammar)
