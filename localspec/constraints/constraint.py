"""The tokens that a grammar allows, position by position.

Where the grammar leaves one continuation, a run of tokens is forced: the tokenizer's own for these bytes.
Only the run's next token is allowed then, so that the text is the same whether the run is taken as a whole or
chosen token by token. A run is found at the first position that has one and kept to its end: the same tokens
before a position always give the same run.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from localspec.backends.base import Vocabulary
from localspec.constraints.grammar import message_of, refusal
from localspec.errors import InvalidOptions

KEPT = 32
"""compiled grammars that are kept"""
LONGEST_RUN = 4096
"""bytes of forced text that are tokenized at once, for all to wait no longer"""
LEAD = "\x02"
"""stands before a text, and is no part of another token, where a tokenizer puts a space before all texts"""
LIMITS = LLParserLimits(verbose_errors=False, max_grammar_size=100_000)
"""the library's own bounds on the sizes of a grammar and on the work for one position"""


class _Tokens:
    """A vocabulary as the library reads it. Markup that is no control token, such as ``<tool_call>``, is one
    token also where it is forced."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = partial(vocabulary.encode, special=False)
        adds_space = b"".join(map(vocabulary.piece, self._encode("a"))) != b"a"
        self._lead = LEAD if adds_space else ""
        self._skipped = len(self._encode(LEAD)) if adds_space else 0
        special = vocabulary.special_tokens
        marks = {vocabulary.text_of(mark).decode(): mark for mark in vocabulary.marks - special}
        self._marks = marks
        self._parts = re.compile(f"({'|'.join(map(re.escape, marks))})") if marks else None
        read = (vocabulary.text_of if t in special else vocabulary.piece for t in range(vocabulary.size))
        self.tokens = [of(token) for token, of in enumerate(read)]
        self.special_token_ids = sorted(special)
        self.bos_token_id, self.eos_token_id = vocabulary.bos, min(vocabulary.end_tokens)

    def __call__(self, text: bytes) -> list[int]:
        said = text[:LONGEST_RUN].decode("utf-8", "ignore")
        parts = [said] if self._parts is None else self._parts.split(said)
        return [token for part in parts if part for token in self._tokens_of(part)]

    def _tokens_of(self, part: str) -> list[int]:
        mark = self._marks.get(part)
        return self._encode(self._lead + part)[self._skipped :] if mark is None else [mark]


class Grammars:
    """Compiles grammars for one vocabulary, and keeps the newest.

    Any thread may compile. The first call also reads the vocabulary: 0.6 s for 152,000 tokens, of which the
    library takes 0.3 s without releasing Python's lock. A JSON schema takes about 1 ms.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._compiled = lru_cache(KEPT)(self._compile)
        self._lock = threading.Lock()

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        ends = sorted(self._vocabulary.end_tokens)
        if not ends:
            raise InvalidOptions("the model has no end token: a constrained answer could not end")
        return LLTokenizer(TokenizerWrapper(_Tokens(self._vocabulary)), self._vocabulary.size, ends)

    def _compile(self, grammar: str) -> LLMatcher:
        matcher = self._matcher(grammar)
        if not matcher.compute_ff_tokens():
            matcher.compute_bitmask()  # a grammar can be too complex from its beginning on
        if matcher.is_error():
            raise refusal(grammar, matcher.get_error(), lambda part: self._matcher(part).get_error())
        return matcher

    def _matcher(self, grammar: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)

    def constraint(self, grammar: str) -> Constraint:
        """Return the constraint of one answer. Raises :class:`InvalidOptions` for a grammar that is not
        valid, too large, or of a kind that the library does not support."""
        with self._lock:
            matcher = self._compiled(grammar).deep_copy()
        return Constraint(matcher, self._vocabulary)


class _Position(NamedTuple):
    """The continuations: token ``at`` of a forced ``run``, or without one those of the bit mask ``bits``;
    ``ended``: the grammar allows nothing more."""

    run: list[int]
    at: int
    bits: bytes
    ended: bool

    @property
    def forced(self) -> int | None:
        return self.run[self.at] if self.run else None

    def allows(self, token: int) -> bool:
        return token == self.forced if self.run else bool(self.bits[token >> 3] >> (token & 7) & 1)


class Constraint:
    """The grammar's state in one answer.

    ``drafted`` in its methods are tokens that follow the accepted ones, all of them allowed. Its methods
    raise :class:`InvalidOptions` if the grammar is too complex at a position.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher, self._size = matcher, vocabulary.size
        self._ends = vocabulary.end_tokens
        self._ahead: list[int] = []
        """tokens beyond the accepted ones that the matcher has consumed"""
        self._positions = [self._look([], 0)]
        """those after the accepted tokens, and after each token of ``_ahead``"""

    @property
    def ended(self) -> bool:
        """True if the answer is complete, and nothing may follow it."""
        return self._positions[0].ended

    def allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
        """Return a mask of the tokens allowed after ``drafted``, shape (vocabulary,)."""
        position = self._at(drafted)
        if position.run:
            mask = np.zeros(self._size, dtype=np.bool_)
            mask[position.forced] = True
            return mask
        bits = np.frombuffer(position.bits, dtype=np.uint8)
        return np.unpackbits(bits, count=self._size, bitorder="little").view(np.bool_)

    def allows(self, token: int, drafted: Sequence[int]) -> bool:
        """True if ``token`` is allowed after ``drafted``."""
        return self._at(drafted).allows(token)

    def only(self, drafted: Sequence[int]) -> int | None:
        """Return the token that is forced after ``drafted``; None if there is a choice."""
        return self._at(drafted).forced

    def prefix(self, draft: Sequence[int]) -> int:
        """Return how many tokens of a draft are allowed, one after the other; none follows an end token."""
        for i, token in enumerate(draft):
            if not self._at(draft[:i]).allows(token):
                return i
            if token in self._ends:
                return i + 1
        return len(draft)

    def forced(self, most: int) -> list[int]:
        """Return the forced tokens after the accepted ones, at most ``most``."""
        n = 0
        while n < most and (token := self._positions[n].forced) is not None:
            if self._ahead[n : n + 1] != [token]:
                self._rewind(n)
                self._consume(token)
            n += 1
        return self._ahead[:n]

    def accept(self, token: int) -> None:
        """Append an allowed token to the answer."""
        if self._ahead[:1] != [token]:
            self._rewind(0)
            self._consume(token)
        del self._positions[0], self._ahead[0]

    def _at(self, drafted: Sequence[int]) -> _Position:
        """Return the position after ``drafted``, or before an end token in it, behind which nothing follows;
        what the matcher has consumed of it is not repeated."""
        known = list(takewhile(lambda token: token not in self._ends, drafted))
        if self._ahead[: len(known)] == known:
            return self._positions[len(known)]
        shared = next(i for i, token in enumerate(known) if self._ahead[i : i + 1] != [token])
        self._rewind(shared)
        for token in known[shared:]:
            self._consume(token)
        return self._positions[-1]

    def _rewind(self, n: int) -> None:
        """Take back all tokens beyond the accepted ones but the first ``n``."""
        if n < len(self._ahead):
            self._matcher.rollback(len(self._ahead) - n)
            del self._ahead[n:], self._positions[n + 1 :]

    def _consume(self, token: int) -> None:
        last = self._positions[-1]
        self._matcher.consume_token(token)
        self._positions.append(self._look(last.run, last.at + 1))
        self._ahead.append(token)

    def _look(self, run: list[int], at: int) -> _Position:
        """Return the matcher's position, at token ``at`` of the run that led to it."""
        matcher = self._matcher
        if at >= len(run):
            run, at = matcher.compute_ff_tokens(), 0
        bits = b"" if run else matcher.compute_bitmask()
        if matcher.is_error():
            said = message_of(matcher.get_error())
            raise InvalidOptions(f"the answer's grammar is too complex: {said}", "Simplify it.")
        return _Position(run, at, bits, matcher.is_stopped())
