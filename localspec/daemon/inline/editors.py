"""The completions of each client: the speed of its typing, and for each path the newest request and the work
that is done ahead of the next one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from localspec.daemon.inline.suggestions import Query
from localspec.daemon.relay.exchange import Receiver

GAP_S = 0.2
"""assumed seconds between two keystrokes, until some were measured"""
PAUSE_S = 1.0
"""seconds from which a gap is a pause, and is not counted in the speed of typing"""
SHARE = 0.2
"""weight of the newest measurement in the moving average"""
GAPS = 1.5
"""gaps without a keystroke after which the user has probably paused"""
LONGEST_S = 0.3
"""longest delay, in seconds"""


class Pace:
    """Averages of the time between one client's keystrokes and of a model's answers, in seconds.

    An answer that comes between two keystrokes is begun at once. A slower one would be cancelled at the next
    keystroke, again and again, at the cost of computing time: it is begun the later, the longer it takes, but
    not after the user has probably paused.
    """

    def __init__(self) -> None:
        self._gap = GAP_S
        self._answer = 0.0
        self._last: float | None = None

    def requested(self, now: float) -> None:
        """Note a request, which a keystroke has caused."""
        if self._last is not None and now - self._last < PAUSE_S:
            self._gap += SHARE * (now - self._last - self._gap)
        self._last = now

    def answered(self, seconds: float, *, whole: bool) -> None:
        """Note the ``seconds`` that a model has worked; ``whole``: until its answer was complete."""
        seconds = min(seconds, PAUSE_S)  # more makes no difference: the model may have been loaded first
        if whole:
            self._answer += SHARE * (seconds - self._answer)
        else:
            self._answer = max(self._answer, seconds)

    @property
    def wait(self) -> float:
        """The delay of the request that was just noted, in seconds."""
        return min(max(0.0, self._answer - self._gap), GAPS * self._gap, LONGEST_S)


MOST = 16
"""prefetches at once, of all clients together"""
CLEAR_S = 1.0
"""seconds that cancelled work may take to end"""


class Prefetched(Receiver):
    """A completion that is computed before it is requested."""

    task: asyncio.Task[None]

    def __init__(self, query: Query) -> None:
        super().__init__()
        self.query = query

    def serves(self, query: Query) -> bool:
        """True if it answers ``query``, or what ``query`` becomes as the user types on."""
        mine = self.query
        return mine.rest == query.rest and mine.prefix.startswith(query.prefix)


@contextmanager
def newest(of_path: dict[str, Receiver], path: str | None, work: Receiver) -> Iterator[None]:
    """Inside, ``work`` is the one for ``path``, instead of an older one, which is cancelled."""
    if path is None:
        yield
        return
    if (older := of_path.get(path)) is not None:
        older.cancel()
    of_path[path] = work
    try:
        yield
    finally:
        if of_path.get(path) is work:
            del of_path[path]


class Editor:
    """One client's completions."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.requests: dict[str, Receiver] = {}
        self.ahead: dict[str, Receiver] = {}
        """prefetches, and requests that warm a prompt up"""


class Editors:
    """The clients with completions, by their outboxes, and all their prefetches."""

    def __init__(self) -> None:
        self._of: defaultdict[object, Editor] = defaultdict(Editor)
        self._prefetches: list[Prefetched] = []
        """the oldest first; some of them are cancelled, and about to end"""

    def of(self, client: object) -> Editor:
        return self._of[client]

    def prefetch(
        self, client: object, path: str, prefetched: Prefetched, work: Coroutine[Any, Any, None]
    ) -> None:
        """Start ``work``, which computes ``prefetched``, in a task; of too many the oldest is cancelled."""
        place = ExitStack()
        place.enter_context(newest(self.of(client).ahead, path, prefetched))
        running = [each for each in self._prefetches if not each.cancelled]
        if len(running) >= MOST:
            running[0].cancel()
        prefetched.task = asyncio.create_task(work)
        self._prefetches.append(prefetched)
        prefetched.task.add_done_callback(lambda _: self._prefetches.remove(prefetched))
        prefetched.task.add_done_callback(lambda _: place.close())

    async def clear(self) -> None:
        """Cancel all prefetches, and wait :data:`CLEAR_S` at most for their ends."""
        for each in self._prefetches:
            each.cancel()
        if self._prefetches:
            await asyncio.wait([each.task for each in self._prefetches], timeout=CLEAR_S)

    async def leave(self, client: object) -> None:
        """Forget a lost client, whose requests have ended; cancel its prefetches, and wait for their ends."""
        if (editor := self._of.pop(client, None)) is None:
            return
        left = [each for each in editor.ahead.values() if isinstance(each, Prefetched)]
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait([each.task for each in left])
