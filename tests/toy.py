"""A tiny deterministic model in memory whose distributions are known exactly.

It obeys the whole contract of a backend, records the forwards computed, and raises an error where a real one
would corrupt its cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import (
    ANY_WIDTH,
    Capabilities,
    FimTokens,
    Interrupted,
    Rows,
    Span,
    check_length,
    first_free,
    top_margin,
)
from localspec.errors import EngineError
from localspec.protocol.options import Options

Rule = Callable[[Sequence[int]], Sequence[float]]
"""The model itself: the tokens so far to the logits of the next one."""

END, FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE = 256, 257, 258, 259
SPECIAL = {END: "<|end|>", FIM_PREFIX: "<|prefix|>", FIM_SUFFIX: "<|suffix|>", FIM_MIDDLE: "<|middle|>"}


class ToyVocabulary:
    """A token per byte, an end token and three for fill-in-the-middle."""

    size = 256 + len(SPECIAL)
    bos: int | None = None
    bos_text = ""
    eos: int | None = END
    end_tokens = frozenset({END})
    special_tokens = frozenset(SPECIAL)
    marks: frozenset[int] = frozenset()
    fim: FimTokens | None = FimTokens(FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE)
    chat_template: str | None = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            for token, name in SPECIAL.items():
                before, found, after = text.partition(name)
                if found:
                    return [*self.encode(before, special=True), token, *self.encode(after, special=True)]
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def text_of(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else SPECIAL[token].encode()


def markov(
    *, seed: int = 0, order: int = 2, temperature: float = 1.0, size: int = ToyVocabulary.size
) -> Rule:
    """A rule that looks at the last ``order`` tokens: random logits, the same for the same tokens."""

    def rule(context: Sequence[int]) -> Sequence[float]:
        key = [seed, *context[max(0, len(context) - order) :]]
        logits: list[float] = (np.random.default_rng(key).standard_normal(size) / temperature).tolist()
        return logits

    return rule


class ToyLogits:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def argmax(self) -> list[int]:
        return [int(token) for token in self._rows.argmax(axis=-1)]

    def margins(self) -> list[float]:
        return [top_margin(row) for row in self._rows]

    def choice(self, i: int) -> int | None:
        token = int(self._rows[i].argmax())
        return token if np.isfinite(self._rows[i, token]) else None

    def rows(self, start: int, stop: int) -> Rows:
        return self._rows[start:stop].copy()

    def row(self, i: int) -> Rows:
        return np.asarray(self._rows[i])


class ToyBackend:
    """The contract over a :data:`Rule`.

    ``rollback`` is the number of tokens that can be taken back, None: any; with "replay" it goes back as a
    recurrent state does. ``noise``: see :meth:`make_noisy`.
    """

    name = "toy"

    def __init__(
        self,
        rule: Rule | None = None,
        *,
        n_ctx: int = 512,
        max_sequences: int = 8,
        rollback: int | Literal["replay"] | None = None,
        noise: float = 0.0,
        vocabulary: ToyVocabulary | None = None,
    ) -> None:
        self.model = self.description = "toy"
        self.rule = rule or markov()
        self.vocabulary = vocabulary or ToyVocabulary()
        self.capabilities = Capabilities(
            n_ctx=n_ctx,
            max_sequences=max_sequences,
            max_batch=512,
            replays=rollback == "replay",
            obstacle="this toy cannot be rolled back" if rollback == 0 else "",
            saves=rollback is None,
        )
        self._rollback = rollback if isinstance(rollback, int) else None
        self.make_noisy(noise)
        self.defaults = Options()
        self.forwards: list[list[Span]] = []
        """every batch so far"""
        self._cache: dict[int, list[int]] = {}
        self._wide: dict[int, list[bool]] = {}
        self._preempted = False
        self._kept: dict[int, dict[str, int]] = {}
        """by sequence: the lengths before the last forward and at the mark"""

    def make_noisy(self, noise: float, *, exact_width: int = 1) -> None:
        """Add errors of up to ``noise`` to the logits of later rows. As in real backends, they depend on
        which cells were written by forwards of more than ``exact_width`` tokens, this one included."""
        self.noise, self._exact_width = noise, exact_width
        self.capabilities = replace(self.capabilities, exact_width=exact_width if noise else ANY_WIDTH)

    def open(self) -> int:
        sequence = first_free(self._cache, self.capabilities)
        self._cache[sequence], self._wide[sequence], self._kept[sequence] = [], [], {}
        return sequence

    def forward(self, batch: Sequence[Span]) -> ToyLogits:
        width = sum(len(span.tokens) for span in batch)
        if not 0 < width <= self.capabilities.max_batch:
            most = self.capabilities.max_batch
            raise EngineError(f"internal error: a forward of {width} tokens, 1 to {most} are possible")
        for span in batch:
            if self.length(span.sequence) + len(span.tokens) > self.capabilities.n_ctx:
                raise EngineError(
                    f"internal error: sequence {span.sequence} has no room for {len(span.tokens)} more tokens"
                )
        if self._preempted:
            raise Interrupted
        self.forwards.append([Span(s.sequence, list(s.tokens), s.rows) for s in batch])
        for span in batch:
            self._kept[span.sequence]["before"] = self.length(span.sequence)
        rows = [row for span in batch for row in self._append(span, wide=width > self._exact_width)]
        return ToyLogits(np.array(rows, dtype=np.float32).reshape(len(rows), self.vocabulary.size))

    def _append(self, span: Span, *, wide: bool) -> list[NDArray[np.float64]]:
        cache, flags = self._cache[span.sequence], self._wide[span.sequence]
        rows = []
        for i, token in enumerate(span.tokens):
            if not 0 <= token < self.vocabulary.size:
                raise EngineError(f"internal error: the vocabulary of {self.model} has no token {token}")
            cache.append(token)
            flags.append(wide)
            if i >= len(span.tokens) - span.rows:
                rows.append(np.array(self.rule(cache)) + self._error(flags))
        return rows

    def _error(self, flags: list[bool]) -> NDArray[np.float64]:
        """Return the rounding error of a row; ``flags``: True for each cell that a wide forward wrote, the
        last one being this row's own."""
        if not self.noise:
            return np.zeros(self.vocabulary.size)
        return np.random.default_rng(flags).uniform(-self.noise, self.noise, self.vocabulary.size)

    def preempt(self, on: bool) -> None:
        self._preempted = on

    def rollback(self, sequence: int) -> int | None:
        return self._rollback

    def reach(self, sequence: int, length: int) -> int:
        depth = self.length(sequence) - length
        if not depth:
            return length
        if self.capabilities.replays:
            return max((at for at in self._kept[sequence].values() if at <= length), default=0)
        return length if self._rollback is None or depth <= self._rollback else 0

    def truncate(self, sequence: int, length: int) -> int:
        cache = self._cache[sequence]
        check_length(sequence, len(cache), length)
        length = self.reach(sequence, length)
        kept = self._kept[sequence]
        self._kept[sequence] = {name: at for name, at in kept.items() if at <= length}
        del cache[length:], self._wide[sequence][length:]
        return length

    def mark(self, sequence: int) -> None:
        self._kept[sequence]["mark"] = self.length(sequence)

    def fork(self, sequence: int, length: int) -> int:
        copy = self.open()
        self._cache[copy] = list(self._cache[sequence])
        self._wide[copy] = list(self._wide[sequence])
        self._kept[copy] = dict(self._kept[sequence])
        self.truncate(copy, length)
        return copy

    def save(self, sequence: int) -> bytearray:
        return bytearray(json.dumps([self._cache[sequence], self._wide[sequence]]).encode())

    def restore(self, state: bytearray) -> int:
        copy = self.open()
        try:
            self._cache[copy], self._wide[copy] = json.loads(state)
        except ValueError:
            self.close(copy)
            raise EngineError("the saved sequence cannot be restored: its bytes are damaged") from None
        return copy

    def close(self, sequence: int) -> None:
        del self._cache[sequence], self._wide[sequence], self._kept[sequence]

    def length(self, sequence: int) -> int:
        return len(self._cache[sequence])

    def tokens(self, sequence: int) -> list[int]:
        return list(self._cache[sequence])

    @property
    def open_sequences(self) -> int:
        return len(self._cache)

    def free(self) -> None:
        self._cache.clear()
