"""What is begun before it is asked for: one piece of work for each path of each client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from localspec.daemon.suggestions import Asked

MOST = 16
"""questions that are looked ahead for at once, for all clients together"""

CLEAR_S = 1.0
"""how long work that is cancelled may take to end"""


class Cancellable(Protocol):
    """What does the work."""

    def cancel(self) -> None:
        """End it at once."""


class Work(NamedTuple):
    """``asked`` is the question that it answers before it is put, if it does."""

    doer: Cancellable
    asked: Asked | None
    task: asyncio.Task[None] | None

    def serves(self, asked: Asked) -> bool:
        """Whether it is of use to who asks this, now or once he has typed on."""
        mine = self.asked
        return mine is not None and mine.rest == asked.rest and mine.prefix.startswith(asked.prefix)

    async def ended(self) -> None:
        """Wait for its end."""
        if self.task is not None:
            await asyncio.wait([self.task])


class Ahead:
    """The work under way, by client and path; newer work takes the place of older."""

    def __init__(self) -> None:
        self._work: dict[tuple[object, str], Work] = {}

    def begin(
        self, client: object, path: str, doer: Cancellable, asked: Asked, work: Coroutine[Any, Any, None]
    ) -> None:
        """Do ``work``, which answers ``asked``, beside everything else; of too many the oldest ends."""
        self.cancel(client, path)
        others = self._own()
        if len(others) >= MOST:
            others[0].doer.cancel()
        task = asyncio.create_task(work)
        mine = self._work[client, path] = Work(doer, asked, task)
        task.add_done_callback(lambda _: self._end(client, path, mine))

    @contextmanager
    def hold(self, client: object, path: str, doer: Cancellable) -> Iterator[None]:
        """Inside, ``doer`` works ahead for ``path``."""
        self.cancel(client, path)
        mine = self._work[client, path] = Work(doer, None, None)
        try:
            yield
        finally:
            self._end(client, path, mine)

    def find(self, client: object, path: str) -> Work | None:
        return self._work.get((client, path))

    def cancel(self, client: object, path: str) -> None:
        """End what is done for ``path``."""
        if (work := self._work.get((client, path))) is not None:
            work.doer.cancel()

    async def clear(self) -> None:
        """End all that nobody asked for, and wait for that, but not for long."""
        own = self._own()
        for work in own:
            work.doer.cancel()
        tasks = [work.task for work in own if work.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLEAR_S)

    def _own(self) -> list[Work]:
        """The questions that are looked ahead for, the oldest first."""
        return [each for each in self._work.values() if each.task is not None]

    async def leave(self, client: object) -> None:
        """The client is gone: end all that is done for it, and wait for that."""
        mine = [work for (owner, _), work in self._work.items() if owner is client]
        for work in mine:
            work.doer.cancel()
        for work in mine:
            await work.ended()

    def _end(self, client: object, path: str, work: Work) -> None:
        if self._work.get((client, path)) is work:
            del self._work[client, path]
