"""A client's subscription to the daemon's live events."""

from __future__ import annotations

from asyncio import Queue

from localspec.protocol.events import LiveEvent

UNREAD = 1024
"""most events that wait for a slow reader; beyond that the oldest are dropped"""


class Subscription:
    """An async iterator of events, each read once; it ends with the connection."""

    def __init__(self) -> None:
        self._events: Queue[LiveEvent | None] = Queue(UNREAD)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> LiveEvent:
        event = await self._events.get()
        if event is None:
            self.end()
            raise StopAsyncIteration
        return event

    # Called by the client.

    def feed(self, event: LiveEvent) -> None:
        """Add an event."""
        self._put(event)

    def end(self) -> None:
        """End the iteration after the events that wait."""
        self._put(None)

    def _put(self, item: LiveEvent | None) -> None:
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(item)
