"""Caches of ended requests, kept so that the next turn need not prefill them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from localspec.backends.base import Backend


class _Idle(NamedTuple):
    slot: int
    tokens: list[int]
    exact: int


class Prefixes:
    """The backend's sequences that nobody uses at the moment, oldest first.

    ``chunk`` is how many tokens of a prompt are computed at once.
    """

    def __init__(self, backend: Backend, chunk: int) -> None:
        self._backend, self._chunk = backend, chunk
        self._idle: list[_Idle] = []

    @property
    def cells(self) -> int:
        """Tokens of cache that idle prefixes hold."""
        return sum(len(idle.tokens) for idle in self._idle)

    def __len__(self) -> int:
        return len(self._idle)

    def keep(self, slot: int, tokens: Sequence[int], exact: int) -> None:
        """``slot`` is free to be taken over.

        Its cache holds the start of ``tokens``, the first ``exact`` of them as any prompt's cells.
        """
        length = self._backend.length(slot)
        if length:
            self._idle.append(_Idle(slot, list(tokens[:length]), min(exact, length)))
        else:
            self._backend.close(slot)

    def take(self, prompt: Sequence[int]) -> tuple[int, int, int]:
        """(a slot, how many tokens of ``prompt`` it holds already, how many of those are exact)."""
        best = max(self._idle, key=lambda idle: self._usable(idle, prompt), default=None)
        usable = self._usable(best, prompt) if best else 0
        if best is None or not usable:
            return self._backend.open(), 0, 0
        self._idle.remove(best)
        self._backend.truncate(best.slot, usable)
        return best.slot, usable, min(best.exact, usable)

    def _usable(self, idle: _Idle, prompt: Sequence[int]) -> int:
        n = 0
        for mine, theirs in zip(idle.tokens, prompt, strict=False):
            if mine != theirs:
                break
            n += 1
        n = self._aligned(min(n, len(prompt) - 1), len(prompt))
        rollback = self._backend.capabilities.rollback
        fits = rollback is None or len(idle.tokens) - n <= rollback
        return n if n > 0 and fits else 0

    def _aligned(self, n: int, length: int) -> int:
        """``n``, or one less: what is left must not begin with a forward of one token.

        That rounds differently from a wider one, and a prompt's cells must not depend on what was cached.
        """
        begins_chunk = n % self._chunk == 0
        ends_chunk = (n + 1) % self._chunk == 0 or n + 1 == length
        return n if begins_chunk or not ends_chunk else n - 1

    def evict(self) -> bool:
        """Close the oldest idle prefix; False if there is none."""
        if not self._idle:
            return False
        self._backend.close(self._idle.pop(0).slot)
        return True
