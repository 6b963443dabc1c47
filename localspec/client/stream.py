"""One request in the daemon, as its client sees it: events, a result, a way to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from localspec.protocol.jsonrpc import Id
from localspec.protocol.messages import (
    ModelProgress,
    SpeculationDegraded,
    StreamDelta,
    StreamProgress,
    StreamStarted,
)

T = TypeVar("T")
Event = StreamProgress | StreamDelta | ModelProgress | SpeculationDegraded


class Stream(Generic[T]):
    """Iterate over it, or over :meth:`events`, once; :meth:`result` may be awaited at any time."""

    def __init__(self, id: Id, cancel: Callable[[], None]) -> None:
        self.id = id
        """the ``request`` of its rounds, see :meth:`Client.subscribe`"""
        self.name: str | None = None
        """what :meth:`Client.resume` calls it, once the daemon has said so"""
        self.seq = -1
        """the number of the last delta that came"""
        self._cancel = cancel
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._end: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # An error that nobody asks for is no fault of the program.
        self._end.add_done_callback(lambda end: None if end.cancelled() else end.exception())

    async def __aiter__(self) -> AsyncIterator[StreamDelta]:
        """The text as it comes; ends with the request, and raises what it failed with."""
        async for event in self.events():
            if isinstance(event, StreamDelta):
                yield event

    async def events(self) -> AsyncIterator[Event]:
        """All that the daemon tells about the request: loading, queueing, prefill, text."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)
        if self._end.done():
            self._end.result()

    async def result(self) -> T:
        """The end; raises the typed error the request failed with."""
        return await asyncio.shield(self._end)

    def stop(self) -> None:
        """Ask for the end: a result with the text so far."""
        if not self._end.done():
            self._cancel()

    async def cancel(self) -> T:
        """Ask for the end and await it."""
        self.stop()
        return await self.result()

    # What the client tells the stream.

    def feed(self, event: Event | StreamStarted) -> None:
        """An event has come."""
        if isinstance(event, StreamStarted):
            self.name = event.stream
            return
        if isinstance(event, StreamDelta):
            self.seq = event.seq
        self._events.put_nowait(event)

    def finish(self, end: T | Exception) -> None:
        """The request has ended."""
        if not self._end.done():
            if isinstance(end, Exception):
                self._end.set_exception(end)
            else:
                self._end.set_result(end)
            self._events.put_nowait(None)
