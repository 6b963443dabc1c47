"""Who runs: requests wait until the target's cache has room for all they may come to need."""

from __future__ import annotations

import time
from collections import deque

from localspec.backends.base import Backend
from localspec.engine.prefixes import Prefixes
from localspec.engine.sequence import NO_SLOT, Sequence


class Scheduler:
    """First come, first served. Sequences move from ``waiting`` to ``running`` and out."""

    def __init__(self, target: Backend, chunk: int) -> None:
        self._target = target
        self._prefixes = Prefixes(target, chunk)
        self._waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def find(self, id: int) -> Sequence | None:
        """The request ``id`` if it has not ended."""
        return next((s for s in (*self.running, *self._waiting) if s.id == id), None)

    def admit(self) -> None:
        """Start what fits, in order of arrival; idle prefixes give way."""
        while self._waiting and self._make_room(self._waiting[0]):
            sequence = self._waiting.popleft()
            self.running.append(sequence)
            taken = self._prefixes.take(sequence.tokens, strict=sequence.takes_chunks)
            sequence.slot, sequence.cached, sequence.exact = taken
            sequence.admitted()

    def make_room(self) -> bool:
        """Close the oldest idle prefix; False if there is none."""
        return self._prefixes.evict()

    def _make_room(self, sequence: Sequence) -> bool:
        """Whether it can start; the prefix it will take over goes last."""
        capabilities = self._target.capabilities
        reserved = sum(s.cells for s in self.running) + sequence.cells
        if reserved > capabilities.n_cells or len(self.running) >= capabilities.max_sequences:
            return False
        prefixes = self._prefixes
        wanted = prefixes.best(sequence.tokens, strict=sequence.takes_chunks)
        # A prefix that is taken over needs no sequence of its own, and its cells are reserved already.
        while (
            len(self.running) + len(prefixes) + (wanted is None) > capabilities.max_sequences
            or reserved + prefixes.cells - (wanted.cells if wanted else 0) > capabilities.n_cells
        ):
            if not prefixes.evict(spare=wanted):
                return False
        return True

    def expire(self) -> None:
        """End what is past its deadline, waiting or running."""
        now = time.monotonic()
        for sequence in (*self.running, *self._waiting):
            if sequence.deadline is not None and now >= sequence.deadline and not sequence.ended:
                sequence.finish = "deadline"

    def retire(self) -> list[Sequence]:
        """Take out what has ended; its cache stays behind as a prefix, a failed one's is freed."""
        ended = [s for s in (*self.running, *self._waiting) if s.ended]
        self.running = [s for s in self.running if not s.ended]
        self._waiting = deque(s for s in self._waiting if not s.ended)
        for sequence in ended:
            if sequence.slot == NO_SLOT:
                continue
            if sequence.error is None:
                self._prefixes.keep(sequence.slot, sequence.tokens, sequence.shareable)
            else:
                self._target.close(sequence.slot)
        return ended

    def abandon(self) -> list[Sequence]:
        """Forget everything, at once; returns what had not ended."""
        left = [*self.running, *self._waiting]
        self.running, self._waiting = [], deque()
        return left
