"""The scheduler: completions go before chats, chats before background requests; equals get equal time.

A step is one piece of a prompt or one round. Of the highest class, the request with the least machine time so
far is served (fair queueing by virtual time: Demers, Keshav and Shenker, 1989). Others of its class share its
round if a token then costs less than in separate rounds. That depends on the machine: on a CPU two plain rows
took 2.4 times as long as one, but four speculating requests took half as long together as one by one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

from localspec.backends.base import ANY_WIDTH, Backend
from localspec.engine.prefixes import Prefixes
from localspec.engine.sequence import NO_SLOT, Sequence
from localspec.errors import LocalspecError
from localspec.protocol.requests import CLASSES, PATIENCE_S, Priority
from localspec.speculation.costs import WIDE, CostCurve

PASSES: dict[Priority, int] = {"completion": 4, "chat": 4, "background": 16}
"""requests of higher classes that get a slot before a waiting one; then it is the first"""
JOINT_COST = 1.1
"""factor by which further requests may raise the cost of a round"""


class Scheduler:
    """Sequences move from waiting to ``running``, where they have a slot, and out; ``costs`` gives the
    seconds of rounds."""

    def __init__(self, target: Backend, costs: CostCurve, prefixes: Prefixes) -> None:
        self._target, self._costs, self._prefixes = target, costs, prefixes
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def all(self) -> list[Sequence]:
        return [*self.running, *self.waiting]

    # Slots.

    def admit(self) -> list[Sequence]:
        """Give slots to waiting requests: late ones first, then the highest class and the longest wait.

        If all slots are taken, a running request of a lower class is suspended: its cells are saved, and it
        waits. Return the suspended ones.
        """
        suspended, stuck = list[Sequence](), set[Priority]()
        for sequence in sorted(self.waiting, key=lambda s: (not _is_late(s), _rank(s), s.id)):
            if sequence.priority in stuck:
                continue
            if len(self.running) >= self._target.capabilities.max_sequences:
                victim = self._victim(sequence.priority)
                if victim is None or not self._suspend(victim):
                    stuck.add(sequence.priority)
                    continue
                suspended.append(victim)
            try:
                self._start(sequence)
            except LocalspecError as error:
                sequence.error = error
        return suspended

    def _start(self, sequence: Sequence) -> None:
        if sequence.state is None:
            self._prefixes.take(sequence, self.running)
        else:
            self._prefixes.make_room(self.running)
            sequence.slot, sequence.state = self._target.restore(sequence.state), None
        equals = [s.served for s in self.running if s.priority == sequence.priority]
        sequence.served = max(sequence.served, min(equals, default=0.0))
        sequence.owed, sequence.passed = _is_late(sequence), 0
        self.waiting.remove(sequence)
        self.running.append(sequence)
        for other in self.waiting:
            other.passed += _rank(other) > _rank(sequence)

    def _victim(self, priority: Priority) -> Sequence | None:
        """The running request to suspend for one of class ``priority``: the one of the lowest class with the
        most machine time; None if there is none to suspend."""
        if not self._target.capabilities.saves:
            return None
        rank = CLASSES.index(priority)
        lower = [s for s in self.running if _rank(s) > rank and not s.ended and not s.owed]
        return max(lower, key=lambda s: (_rank(s), s.served), default=None)

    def _suspend(self, sequence: Sequence) -> bool:
        """Save the request's cells and take its slot; return False if they cannot be saved: it goes on."""
        sequence.state = self._prefixes.save(sequence.slot)
        if sequence.state is None:
            return False
        self._target.close(sequence.slot)
        sequence.slot = NO_SLOT
        self.running.remove(sequence)
        self.waiting.append(sequence)
        return True

    # Steps.

    def next(self) -> list[Sequence]:
        """Return the requests of the next step: one whose prompt is read, or all that share a round."""
        live = [s for s in self.running if not s.ended]
        if len(live) <= 1:
            return live
        now, best = time.monotonic(), min(map(_rank, live))
        late = [s for s in live if _rank(s) != best and (s.owed or now - s.turn > self._patience(s))]
        first = min(late or [s for s in live if _rank(s) == best], key=lambda s: (s.served, s.id))
        if not first.prefilled or not self._may_share(first):
            return [first]
        decoding = [s for s in live if s.prefilled and self._may_share(s)]
        equals = [s for s in decoding if s.priority == first.priority]
        # All rows of a round are as wide as the widest: requests with drafts of similar length share one.
        width = first.account.width
        equals.sort(key=lambda s: (s is not first, abs(s.account.width - width), s.served, s.id))
        each = [self._seconds(equals[:n]) / n for n in range(1, len(equals) + 1)]
        group = equals[: each.index(min(each)) + 1]
        limit = JOINT_COST * self._seconds(group)
        for sequence in decoding:
            if sequence not in group and self._seconds([*group, sequence]) <= limit:
                group.append(sequence)
        # llama.cpp computes streams together only if their numbers are consecutive.
        return sorted(group, key=lambda s: s.slot)

    def _patience(self, sequence: Sequence) -> float:
        """Seconds that it waits for higher classes: at least as many as a piece of its prompt takes, because
        they then wait for that."""
        piece = 0.0 if sequence.prefilled else self._costs.seconds(sequence.chunk, len(sequence.tokens))
        return max(PATIENCE_S[sequence.priority], piece)

    def _may_share(self, sequence: Sequence) -> bool:
        """Return True if the request can share a round: the backend computes sequences together, and that
        changes no row of a strict request."""
        can = self._target.capabilities
        equal = can.exact_batches and can.exact_width == ANY_WIDTH
        return can.batches and (equal or not sequence.settings.strict)

    def _seconds(self, sequences: Seq[Sequence]) -> float:
        """The usual seconds of a round of these requests."""
        total = max(s.account.width for s in sequences) * len(sequences)
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
        deadline = min((s.deadline for s in self.all if not s.ended), default=math.inf)
        return deadline if deadline < math.inf else None

    def retire(self, conclude: Callable[[Sequence], None]) -> None:
        """Remove requests that have ended, or are past their deadlines, one after the other: release its
        slot, ``conclude`` it, drop it."""
        now = time.monotonic()
        for book in (self.running, self.waiting):
            for sequence in tuple(book):
                if not sequence.ended:
                    if now < sequence.deadline:
                        continue
                    sequence.finish = "deadline"
                sequence.state = None
                if sequence.slot != NO_SLOT:
                    self._prefixes.keep(sequence)
                conclude(sequence)
                book.remove(sequence)

    def abandon(self) -> list[Sequence]:
        """Drop all requests at once, and return them."""
        left = self.all
        self.running, self.waiting = [], []
        return left


def _is_late(sequence: Sequence) -> bool:
    return sequence.passed >= PASSES[sequence.priority]


def _rank(sequence: Sequence) -> int:
    """The place of its class, 0 for the first."""
    return CLASSES.index(sequence.priority)
