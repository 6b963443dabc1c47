"""Prefetched completions: one piece of work for each path of each client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from localspec.daemon.inline.suggestions import Query
from localspec.daemon.relay.exchange import Receiver

MOST = 16
"""prefetches at once, of all clients together"""

CLEAR_S = 1.0
"""seconds that cancelled work may take to end"""


class Work(NamedTuple):
    """Work for a path; ``query`` is the completion that it prefetches, None for a prefill."""

    doer: Receiver
    query: Query | None
    task: asyncio.Task[None] | None

    def serves(self, query: Query) -> bool:
        """True if it answers ``query``, or what ``query`` becomes as the user types on."""
        mine = self.query
        return mine is not None and mine.rest == query.rest and mine.prefix.startswith(query.prefix)

    async def ended(self) -> None:
        """Wait for its end."""
        if self.task is not None:
            await asyncio.wait([self.task])


class Prefetch:
    """The work under way, by client and path; newer work replaces older."""

    def __init__(self) -> None:
        self._work: dict[tuple[object, str], Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """the prefetches, with those that were replaced and are ending"""

    def begin(
        self, client: object, path: str, doer: Receiver, query: Query, work: Coroutine[Any, Any, None]
    ) -> None:
        """Start ``work``, which answers ``query``, in a task; of too many the oldest is cancelled."""
        self.cancel(client, path)
        others = self._own()
        if len(others) >= MOST:
            others[0].doer.cancel()
        task = asyncio.create_task(work)
        mine = self._work[client, path] = Work(doer, query, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._end(client, path, mine))

    @contextmanager
    def hold(self, client: object, path: str, doer: Receiver) -> Iterator[None]:
        """Register ``doer`` as the work for ``path`` while the context is open."""
        self.cancel(client, path)
        mine = self._work[client, path] = Work(doer, None, None)
        try:
            yield
        finally:
            self._end(client, path, mine)

    def find(self, client: object, path: str) -> Work | None:
        return self._work.get((client, path))

    def cancel(self, client: object, path: str) -> None:
        """Cancel the work for ``path``."""
        if (work := self._work.get((client, path))) is not None:
            work.doer.cancel()

    async def clear(self) -> None:
        """Cancel all prefetches, and wait :data:`CLEAR_S` at most for their ends."""
        for work in self._own():
            work.doer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLEAR_S)

    def _own(self) -> list[Work]:
        """The prefetches, the oldest first."""
        return [each for each in self._work.values() if each.task is not None]

    async def leave(self, client: object) -> None:
        """Cancel all work of a lost client, and wait for its end."""
        mine = [work for (owner, _), work in self._work.items() if owner is client]
        for work in mine:
            work.doer.cancel()
        for work in mine:
            await work.ended()

    def _end(self, client: object, path: str, work: Work) -> None:
        if self._work.get((client, path)) is work:
            del self._work[client, path]
