"""Caches of ended requests, kept so that the next turn need not prefill them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from localspec.backends.base import Backend

FRESH = 2
"""at least this many tokens are always prefilled: a forward of one token rounds differently from a
wider one, and a prompt's text must not depend on what was cached"""


class _Idle(NamedTuple):
    slot: int
    tokens: list[int]


class Prefixes:
    """The backend's sequences that nobody uses at the moment, oldest first."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._idle: list[_Idle] = []

    @property
    def cells(self) -> int:
        """Tokens of cache that idle prefixes hold."""
        return sum(len(idle.tokens) for idle in self._idle)

    def __len__(self) -> int:
        return len(self._idle)

    def keep(self, slot: int, tokens: Sequence[int]) -> None:
        """``slot`` is free to be taken over; its cache holds the start of ``tokens``."""
        length = self._backend.length(slot)
        if length:
            self._idle.append(_Idle(slot, list(tokens[:length])))
        else:
            self._backend.close(slot)

    def take(self, prompt: Sequence[int]) -> tuple[int, int]:
        """(a slot, how many tokens of ``prompt`` it holds already)."""
        best = max(self._idle, key=lambda idle: self._usable(idle, prompt), default=None)
        usable = self._usable(best, prompt) if best else 0
        if best is None or not usable:
            return self._backend.open(), 0
        self._idle.remove(best)
        self._backend.truncate(best.slot, usable)
        return best.slot, usable

    def _usable(self, idle: _Idle, prompt: Sequence[int]) -> int:
        n = 0
        for mine, theirs in zip(idle.tokens, prompt, strict=False):
            if mine != theirs:
                break
            n += 1
        n = min(n, len(prompt) - FRESH)
        rollback = self._backend.capabilities.rollback
        fits = rollback is None or len(idle.tokens) - n <= rollback
        return n if n > 0 and fits else 0

    def evict(self) -> bool:
        """Close the oldest idle prefix; False if there is none."""
        if not self._idle:
            return False
        self._backend.close(self._idle.pop(0).slot)
        return True
