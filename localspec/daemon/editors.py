"""The clients with completions: for each path the newest request, and the work that is done ahead of the next
one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from localspec.daemon.relay import Receiver
from localspec.daemon.suggestions import Query

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
        return mine.rest == query.rest and mine.gap.prefix.startswith(query.gap.prefix)


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
        self.answer_s = 0.0
        """average seconds that the model has worked on the last answers"""
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
