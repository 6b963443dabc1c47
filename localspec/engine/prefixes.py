"""Caches of ended requests, kept so that the next turn need not prefill them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from localspec.backends.base import Backend
from localspec.speculation.draft import shared_length


class Idle(NamedTuple):
    """A sequence of the backend that nobody uses: what it holds, and how many cells are exact."""

    slot: int
    tokens: list[int]
    exact: int

    @property
    def cells(self) -> int:
        return len(self.tokens)


class Prefixes:
    """The backend's sequences that nobody uses at the moment, oldest first.

    ``chunk`` is how many tokens of a prompt are computed at once.
    """

    def __init__(self, backend: Backend, chunk: int) -> None:
        self._backend, self._chunk = backend, chunk
        self._idle: list[Idle] = []

    @property
    def cells(self) -> int:
        """Tokens of cache that idle prefixes hold."""
        return sum(idle.cells for idle in self._idle)

    def __len__(self) -> int:
        return len(self._idle)

    def keep(self, slot: int, tokens: Sequence[int], exact: int) -> None:
        """``slot`` is free to be taken over.

        Its cache holds the start of ``tokens``; the first ``exact`` cells are what they would be in any
        longer prompt.
        """
        length = self._backend.length(slot)
        if length:
            self._idle.append(Idle(slot, list(tokens[:length]), min(exact, length)))
        else:
            self._backend.close(slot)

    def best(self, prompt: Sequence[int], *, strict: bool) -> Idle | None:
        """The prefix that spares ``prompt`` most; None if none spares anything.

        ``strict`` takes only cells that any prompt would have: whole chunks.
        """
        best = max(self._idle, key=lambda idle: self._usable(idle, prompt, strict), default=None)
        return best if best is not None and self._usable(best, prompt, strict) else None

    def take(self, prompt: Sequence[int], *, strict: bool) -> tuple[int, int, int]:
        """(a slot, how many tokens of ``prompt`` it holds already, how many of these cells are exact)."""
        best = self.best(prompt, strict=strict)
        if best is None:
            return self._backend.open(), 0, 0
        usable = self._usable(best, prompt, strict)
        self._idle.remove(best)
        usable = self._backend.truncate(best.slot, usable)
        all_exact = self._backend.capabilities.exact_pieces
        exact = min(usable, best.exact)
        return best.slot, usable, usable if all_exact else exact - exact % self._chunk

    def _usable(self, idle: Idle, prompt: Sequence[int], strict: bool) -> int:
        # The last token is always fed: its row gives the answer's first one.
        n = shared_length(idle.tokens, prompt[:-1])
        if strict and not self._backend.capabilities.exact_pieces:
            n = min(n, idle.exact)
            n -= n % self._chunk
        return self._backend.reach(idle.slot, n)

    def evict(self, *, spare: Idle | None = None) -> bool:
        """Close the oldest idle prefix but ``spare``; False if there is none."""
        victim = next((idle for idle in self._idle if idle is not spare), None)
        if victim is None:
            return False
        self._idle.remove(victim)
        self._backend.close(victim.slot)
        return True
