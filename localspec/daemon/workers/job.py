"""A frame that a worker answers, from its sending to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from localspec.protocol.frames import Cancel, ToWorker
from localspec.protocol.requests import Priority


class WorkerJob:
    """A frame that a worker answers: events go to ``on_event`` as they come, the end is awaited in ``end``.
    ``priority``: the class of a request that takes part in the turns on the CPU."""

    def __init__(
        self,
        send: Callable[[ToWorker], None],
        id: int,
        on_event: Callable[[Any], None],
        priority: Priority | None = None,
        end: asyncio.Future[Any] | None = None,
    ) -> None:
        self.end = end or new_future()
        """gets a :class:`Result`, or the answer to another frame"""
        self.on_event = on_event
        self.id, self.priority = id, priority
        self.begun, self.is_unread = False, False
        """whether an event has come; whether its frame was lost with a worker that had not read it"""
        self._send = send

    def cancel(self) -> None:
        """Request the end, which comes as a result with the text so far."""
        self._send(Cancel(self.id))

    async def result(self) -> Any:
        """Wait for the end, and request it if the waiting task is cancelled."""
        try:
            return await self.end
        except asyncio.CancelledError:
            self.cancel()
            raise


def new_future() -> asyncio.Future[Any]:
    """A future whose error may never be awaited, without a warning of asyncio."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return future
