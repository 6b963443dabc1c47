"""The scheduler: completions go before chats, chats before background requests; equals get equal time.

A step is one piece of a prompt or one round. Of the highest class, the request with the least machine time so
far is served (fair queueing by virtual time: Demers, Keshav and Shenker, 1989). Others of its class share its
round if a token then costs less than in separate rounds. That depends on the machine: on a CPU two plain rows
took 2.4 times as long as one, but four speculating requests took half as long together as one by one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterable
from collections.abc import Sequence as Seq

from localspec.backends.base import Backend
from localspec.engine.exactness import must_play_alone
from localspec.engine.prefixes import WORTH, Prefixes, Taken
from localspec.engine.saved import File, Saved
from localspec.engine.sequence import NO_SLOT, Sequence
from localspec.errors import EngineError, LocalspecError
from localspec.protocol.requests import CLASSES, PATIENCE_S, Priority
from localspec.speculation.costs import WIDE, CostCurve

log = logging.getLogger(__name__)

PASSES: dict[Priority, int] = {"completion": 4, "chat": 4, "background": 16}
"""requests of higher classes that get a slot before a waiting one; then it is the first"""
JOINT_COST = 1.1
"""factor by which further requests may raise the cost of a round"""


class Scheduler:
    """Sequences move from waiting to ``running``, where they have a slot, and out.

    ``costs`` gives the seconds of rounds; ``saved`` are the chats on disk.
    """

    def __init__(self, target: Backend, costs: CostCurve, saved: Saved | None = None) -> None:
        self._target, self._costs, self._saved = target, costs, saved
        self.prefixes = Prefixes(target)
        self._waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a request."""
        sequence.turn = time.monotonic()
        self._waiting.append(sequence)

    def find(self, id: int) -> Sequence | None:
        """Return the request ``id``; None if it is neither waiting nor running."""
        return next((s for s in (*self.running, *self._waiting) if s.id == id), None)

    # Slots.

    def admit(self) -> list[Sequence]:
        """Give slots to waiting requests, the highest class and the longest wait first.

        If all slots are taken, a running request of a lower class is suspended: its cells are saved, and it
        waits. Return the suspended ones.
        """
        moved: list[Sequence] = []
        stuck: set[Priority] = set()
        while self._waiting and (sequence := self._first(stuck)) is not None:
            if self._is_full:
                victim = self._victim(sequence.priority)
                if victim is None or not self._suspend(victim):
                    stuck.add(sequence.priority)
                    continue
                moved.append(victim)
            try:
                self._start(sequence)
            except LocalspecError as error:
                sequence.error = error
                continue
            self._pass(sequence)
            self.running.append(sequence)
            self._waiting.remove(sequence)
        return moved

    @property
    def _is_full(self) -> bool:
        return len(self.running) >= self._target.capabilities.max_sequences

    def _first(self, stuck: set[Priority]) -> Sequence | None:
        """The waiting request that gets the next slot; None if none can get one."""
        classes = {s.priority for s in self._waiting} - stuck
        if self._is_full:
            classes = {each for each in classes if self._victim(each) is not None}
        if not classes:
            return None
        able = (s for s in self._waiting if s.priority in classes and s.error is None)
        return min(able, key=_waits_behind, default=None)

    def _pass(self, sequence: Sequence) -> None:
        """Count, for waiting requests of lower classes, that ``sequence`` gets a slot before them."""
        sequence.owed, sequence.passed = _is_late(sequence), 0
        for other in self._waiting:
            other.passed += CLASSES.index(other.priority) > CLASSES.index(sequence.priority)

    def _start(self, sequence: Sequence) -> None:
        if sequence.state is not None:
            self.prefixes.make_room(self.running)
            sequence.slot, sequence.state = self._target.restore(sequence.state), None
        else:
            sequence.slot, sequence.cached, sequence.canonical = self._take(sequence)
            sequence.exact = sequence.canonical
        equals = [s.served for s in self.running if s.priority == sequence.priority]
        sequence.served = max(sequence.served, min(equals, default=0.0))
        sequence.admitted()

    def _take(self, sequence: Sequence) -> Taken:
        """Return a slot with as much of the prompt as is cached, in memory or on disk."""
        spared = self.prefixes.spares(sequence)
        file = self._saved.find(sequence, spared + WORTH) if self._saved is not None else None
        if self._saved is not None and file is not None:
            self._read(self._saved, file)
        return self.prefixes.take(sequence, self.running)

    def _read(self, saved: Saved, file: File) -> None:
        """Restore the cache in a file to a slot; delete a file that cannot be restored."""
        state = saved.read(file)
        if state is None:
            return
        try:
            self.prefixes.restore(file.cached, state, self.running)
        except EngineError as error:
            log.warning("%s cannot be restored and is deleted: %s", file.path, error.message)
            saved.drop(file)

    def _victim(self, priority: Priority) -> Sequence | None:
        """The running request to suspend for one of class ``priority``: the one of the lowest class with the
        most machine time; None if there is none to suspend."""
        if not self._target.capabilities.saves:
            return None
        rank = CLASSES.index(priority)
        lower = [s for s in self.running if CLASSES.index(s.priority) > rank and not s.ended and not s.owed]
        return max(lower, key=lambda s: (CLASSES.index(s.priority), s.served), default=None)

    def _suspend(self, sequence: Sequence) -> bool:
        """Save the request's cells and take its slot; return False if they cannot be saved: it goes on."""
        sequence.state = self._save(sequence.slot)
        if sequence.state is None:
            return False
        slot, sequence.slot = sequence.slot, NO_SLOT
        self._waiting.append(sequence)
        self.running.remove(sequence)
        self._target.close(slot)
        return True

    def _save(self, slot: int) -> bytearray | None:
        try:
            return self._target.save(slot)
        except LocalspecError as error:
            log.warning("the KV cache of a request cannot be saved: %s", error.message)
            return None

    # Steps.

    def next(self) -> list[Sequence]:
        """Return the requests of the next step: one whose prompt is read, or all that share a round."""
        live = [s for s in self.running if not s.ended]
        if len(live) <= 1:
            return live
        now = time.monotonic()
        best = min(live, key=lambda s: CLASSES.index(s.priority)).priority
        late = [s for s in live if s.priority != best and (s.owed or now - s.turn > self._patience(s))]
        first = min(late or [s for s in live if s.priority == best], key=lambda s: (s.served, s.id))
        if not first.prefilled:
            return [first]
        decoding = [s for s in live if s.prefilled]
        if not self._may_share(first):
            return [first]
        equals = [s for s in decoding if s.priority == first.priority and self._may_share(s)]
        # All rows of a round are as wide as the widest: requests with drafts of similar length share one.
        near = sorted(equals, key=lambda s: (s is not first, abs(s.width - first.width), s.served, s.id))
        group = self._cheapest(near)
        others = [s for s in decoding if s not in group and self._may_share(s)]
        # llama.cpp computes streams together only if their numbers are consecutive.
        return sorted([*group, *self._joining(group, others)], key=lambda s: s.slot)

    def _patience(self, sequence: Sequence) -> float:
        """Seconds that it waits for higher classes: at least as many as a piece of its prompt takes, because
        they then wait for that."""
        piece = 0.0 if sequence.prefilled else self._costs.seconds(sequence.chunk, len(sequence.tokens))
        return max(PATIENCE_S[sequence.priority], piece)

    def _may_share(self, sequence: Sequence) -> bool:
        """Return True if the request can share a round: the backend computes sequences together, and that
        changes no row of a strict request."""
        capabilities = self._target.capabilities
        return capabilities.batches and not must_play_alone(capabilities, sequence)

    def _cheapest(self, sequences: Seq[Sequence]) -> list[Sequence]:
        """Return the first of ``sequences`` and as many others as make the round cheapest for each."""
        each = [self._seconds(sequences[:n]) / n for n in range(1, len(sequences) + 1)]
        return list(sequences[: each.index(min(each)) + 1])

    def _joining(self, group: list[Sequence], others: Iterable[Sequence]) -> list[Sequence]:
        """Return those of ``others`` that hardly slow down the group's round."""
        limit, joined = JOINT_COST * self._seconds(group), list[Sequence]()
        for sequence in others:
            if self._seconds([*group, *joined, sequence]) <= limit:
                joined.append(sequence)
        return joined

    def _seconds(self, sequences: Seq[Sequence]) -> float:
        """The usual seconds of a round of these requests."""
        widths = [s.width for s in sequences]
        total = max(widths) * len(widths)
        line = self._costs.line(max(len(s.tokens) for s in sequences))
        return line[min(round(total), WIDE)]

    def charge(self, sequences: Seq[Sequence], seconds: float) -> None:
        """Charge ``seconds`` of machine time to the requests that were served together, in equal shares."""
        now = time.monotonic()
        for sequence in sequences:
            sequence.served += seconds / len(sequences)
            sequence.turn, sequence.owed = now, False

    # Ends.

    @property
    def deadline(self) -> float | None:
        """The next deadline, as a time of :func:`time.monotonic`; None if there is none."""
        deadlines = (s.deadline for s in (*self.running, *self._waiting) if not s.ended)
        return min((at for at in deadlines if at < math.inf), default=None)

    def expire(self) -> None:
        """End all requests, waiting or running, that are past their deadlines."""
        now = time.monotonic()
        for sequence in (*self.running, *self._waiting):
            if now >= sequence.deadline and not sequence.ended:
                sequence.finish = "deadline"

    def retire(self, conclude: Callable[[Sequence], None]) -> None:
        """Remove ended requests, one after the other: release its slot, ``conclude`` it, drop it."""
        for book in (self.running, self._waiting):
            for sequence in tuple(book):
                if not sequence.ended:
                    continue
                sequence.state = None
                if sequence.slot != NO_SLOT:
                    self.prefixes.keep(sequence)
                conclude(sequence)
                book.remove(sequence)

    def abandon(self) -> list[Sequence]:
        """Drop all requests at once, and return them."""
        left = [*self.running, *self._waiting]
        self.running, self._waiting = [], []
        return left

    # Chats on disk.

    def save_chat(self) -> Generator[None, None, None] | None:
        """Return the steps of writing one chat's cache to disk; None if all are written."""
        if self._saved is None or not self._target.capabilities.saves:
            return None
        for cached in self.prefixes:
            if self._saved.should_write(cached):
                state = self._save(cached.slot)
                cached.saved = True
                if state is not None:
                    return self._saved.write(cached, state)
        return None

    def forget(self, source: str) -> None:
        """Drop the cached prefixes and files of ``source``, and let running requests leave none."""
        for sequence in (*self.running, *self._waiting):
            sequence.forgotten |= sequence.source == source
        self.prefixes.forget(source)
        if self._saved is not None:
            self._saved.forget(source)


def _is_late(sequence: Sequence) -> bool:
    return sequence.passed >= PASSES[sequence.priority]


def _waits_behind(sequence: Sequence) -> tuple[bool, int, int]:
    """The sort key of waiting requests: late ones first, then by class, then by submission."""
    return not _is_late(sequence), CLASSES.index(sequence.priority), sequence.id
