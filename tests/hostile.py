"""Proposers that are wrong in every way there is: none may change a text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from localspec.backends.base import Backend, Logits, Span
from localspec.errors import EngineError
from localspec.speculation.proposer import Ask, Draft, Proposer

Guess = Callable[[Ask], Sequence[int]]


class Hostile(Proposer):
    """A proposer that offers the tokens of ``guess``, of any length."""

    def __init__(self, name: str, guess: Guess) -> None:
        self.name = name
        self._guess = guess

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft(tuple(self._guess(ask)), self.name) for ask in asks]


def family(truth: Sequence[int], *, size: int, end: int, prompt_length: int) -> list[Hostile]:
    """The hostile family around ``truth``, the answer that plain decoding gives (end token included)."""
    rng = random.Random(1)

    def coming(ask: Ask) -> list[int]:
        done = len(ask.context) - prompt_length
        return list(truth[done : done + ask.k])

    def wrong(ask: Ask) -> list[int]:
        right = coming(ask) or [0]
        return [(right[0] + 1) % size] * ask.k

    def right_then_wrong(ask: Ask) -> list[int]:
        right = coming(ask)
        return [*right[: len(right) // 2], *((token + 1) % size for token in right[len(right) // 2 :])]

    def moody(ask: Ask) -> list[int]:
        return coming(ask)[: rng.randrange(ask.k + 1)] + [rng.randrange(size)] if ask.k else []

    def fails_late(ask: Ask) -> list[int]:
        if len(ask.context) > prompt_length + 5:
            raise RuntimeError("no more")
        return coming(ask)

    return [
        Hostile("always-wrong", wrong),
        Hostile("right-then-wrong", right_then_wrong),
        Hostile("over-long", lambda ask: [*coming(ask), *(1 for _ in range(50))]),
        Hostile("past-the-end", lambda ask: [*coming(ask), end, 3, end]),
        Hostile("end-at-once", lambda ask: [end] * ask.k),
        Hostile("random", lambda ask: [rng.randrange(size) for _ in range(ask.k)]),
        Hostile("not-a-token", lambda ask: [size + 7, -1, 2**40][: ask.k]),
        Hostile("moody", moody),
        Hostile("fails-late", fails_late),
        Hostile("oracle", coming),
    ]


class Dying:
    """A backend that fails for good after ``forwards`` of them; in all else it is ``inner``."""

    def __init__(self, inner: Backend, forwards: int) -> None:
        self._inner, self._left = inner, forwards

    def forward(self, batch: Sequence[Span]) -> Logits:
        self._left -= 1
        if self._left < 0:
            raise EngineError("the draft model is gone")
        return self._inner.forward(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
