"""The turns of workers that compute on the CPU at the same time: one goes on while the others wait.

Without turns the threads of one forward wait for a core that another model has, and both models lose.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable

from localspec.protocol.frames import GrantTurn
from localspec.protocol.requests import CLASSES, PATIENCE_S, Priority

SLICE_S = 0.05
"""seconds of a turn, which ends with the forward that passes them; changing turns takes about 0.5 ms"""
GRACE_S = 0.15
"""seconds that the others wait for a worker whose turn is over"""
DEBT_S = 0.5
"""most seconds that a worker counts as ahead of the others, and waits for: it may have had minutes while
its requests were of a higher class"""


def later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)


class Turns:
    """The workers with requests, and the one whose turn, a slice of time, it is. Of the highest class of
    requests the worker with the least time so far is next; a lower class gets a turn when it has waited for
    its patience. A worker that is in a long forward when its turn ends is not waited for longer than
    :data:`GRACE_S`: then the next one computes beside it."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] = later,
    ) -> None:
        self.clock = clock
        self._later = later
        self._sharing: list[TurnShare] = []
        self._holder: TurnShare | None = None
        """the worker whose turn it is; None while fewer than two compute"""
        self._number = 0
        self._overdue: asyncio.TimerHandle | None = None

    def join(self, share: TurnShare) -> None:
        """Let a worker compute: alone without limits, or else in turns."""
        others = self._sharing
        share.spent_s = min((each.spent_s for each in others), default=0.0)
        self._sharing = [*others, share]
        if not others:
            share.free()
            return
        share.hold()
        if self._holder is None:
            self._give(others[0])
        self.hurry(share)

    def hurry(self, share: TurnShare) -> None:
        """End the turn of a worker with requests of a lower class than ``share`` has."""
        if self._holder is not None and share.rank < self._holder.rank:
            self._holder.take(self._number, 0.0)

    def leave(self, share: TurnShare) -> None:
        self._sharing.remove(share)
        if len(self._sharing) == 1:
            self._holder = None
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None
            self._sharing[0].free()
        elif share is self._holder:
            self._next()

    def over(self, share: TurnShare, number: int) -> None:
        if share in self._sharing:
            least = min(each.spent_s for each in self._sharing)
            share.spent_s = min(share.spent_s, least + DEBT_S)
        if share is self._holder and number == self._number:
            self._next()

    def _next(self) -> None:
        """Begin the turn of the next of the waiting workers; if none waits, look again later."""
        waiting = [share for share in self._sharing if share.waits]
        if not waiting:
            self._expect()
            return
        now, best = self.clock(), min(share.rank for share in waiting)
        late = [s for s in waiting if s.rank > best and now - s.since > PATIENCE_S[s.priority]]
        self._give(min(late or waiting, key=lambda share: (share.rank, share.spent_s)))

    def _give(self, share: TurnShare) -> None:
        self._holder, self._number = share, self._number + 1
        share.take(self._number, SLICE_S)
        self._expect()

    def _expect(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self._later(SLICE_S + GRACE_S, self._next)


class TurnShare:
    """The part of one worker in the turns; ``send`` sends it a frame."""

    def __init__(self, turns: Turns, send: Callable[[GrantTurn], None]) -> None:
        self._turns = turns
        self._send = send
        self._requests = Counter[Priority]()
        self._is_free = True
        self._number = 0
        self.waits = False
        self.since = 0.0
        """when its last turn ended"""
        self.spent_s = 0.0
        """seconds of its turns"""

    @property
    def priority(self) -> Priority:
        """The highest class of its requests."""
        return next((each for each in CLASSES if self._requests[each]), "background")

    @property
    def rank(self) -> int:
        return CLASSES.index(self.priority)

    def begin(self, priority: Priority) -> None:
        """Note a request, before it is sent to the worker."""
        is_first = not self._requests.total()
        self._requests[priority] += 1
        if is_first:
            self._turns.join(self)
        else:
            self._turns.hurry(self)

    def end(self, priority: Priority) -> None:
        self._requests[priority] -= 1
        if not self._requests.total():
            self._turns.leave(self)

    def leave(self) -> None:
        """Note the end of all requests at once."""
        if self._requests.total():
            self._requests.clear()
            self._turns.leave(self)

    def over(self, number: int, seconds: float) -> None:
        """Note the end of a turn that took ``seconds``."""
        if self.waits or number != self._number:
            return  # of an earlier turn, or reported before
        self.waits, self.since = True, self._turns.clock()
        self.spent_s += seconds
        self._turns.over(self, number)

    def free(self) -> None:
        """Have it compute without limits."""
        self.waits, self._number = False, 0
        if not self._is_free:
            self._is_free = True
            self._send(GrantTurn(0, math.inf))

    def hold(self) -> None:
        """Have it wait for its first turn."""
        self.waits, self.since = True, self._turns.clock()
        self.take(0, 0.0)

    def take(self, number: int, seconds: float) -> None:
        """Have it compute for some seconds."""
        self._is_free, self._number = False, number
        self.waits = self.waits and not seconds
        self._send(GrantTurn(number, seconds))
