"""One request to the daemon, as its client sees it: events, a result, a way to stop it; and live events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args

from localspec.errors import LocalspecError
from localspec.protocol.events import LiveEvent
from localspec.protocol.jsonrpc import Id
from localspec.protocol.messages import (
    ModelProgress,
    SpeculationDegraded,
    StreamDelta,
    StreamProgress,
    StreamStarted,
)

T = TypeVar("T")
E = TypeVar("E")
Event = StreamProgress | StreamDelta | ModelProgress | SpeculationDegraded

UNREAD = 1024
"""most live events that wait for a slow reader; beyond that the oldest are dropped"""


class Reading(Generic[E]):
    """An iterator over the events of ``kinds``; closing it ends the request, leaving its loop does not."""

    def __init__(self, stream: Stream[Any], *kinds: type[E]) -> None:
        self._stream = stream
        self._kinds = kinds

    def __aiter__(self) -> Reading[E]:
        return self

    async def __anext__(self) -> E:
        while True:
            event = await self._stream.next_event()
            if isinstance(event, self._kinds):
                return event

    async def aclose(self) -> None:
        """End the request and wait for the end, also if no event was read."""
        await self._stream.aclose()


class Stream(Generic[T]):
    """Iterate over it, or over :meth:`events`, once; :meth:`result` may be awaited at any time.

    The request goes on until :meth:`cancel`, :meth:`stop` or :meth:`aclose` ends it, also if nothing is read.
    """

    def __init__(self, id: Id, cancel: Callable[[], None]) -> None:
        self.id = id
        """the ``request`` of its rounds, see :meth:`Client.subscribe`"""
        self.name: str | None = None
        """the stream's id for :meth:`Client.resume`; None until the daemon has sent it"""
        self.seq = -1
        """the number of the last delta that came"""
        self.loaded_s: float | None = None
        """seconds until its model was loaded; None if it was loaded already"""
        self._began, self._loading = time.monotonic(), False
        self._cancel = cancel
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._end: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # An error that is never read must not be logged by asyncio.
        self._end.add_done_callback(lambda end: None if end.cancelled() else end.exception())

    def __aiter__(self) -> Reading[StreamDelta]:
        """The text as it comes; ends with the request, and raises the request's error."""
        return Reading(self, StreamDelta)

    def events(self) -> Reading[Event]:
        """All events of the request: loading, queueing, prefill, text."""
        return Reading(self, *get_args(Event))

    async def next_event(self) -> Event:
        """The next event. Raises the request's error, and :class:`StopAsyncIteration` at the end."""
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            if self._end.done():
                self._end.result()
            raise StopAsyncIteration
        return event

    async def result(self) -> T:
        """The request's result; raises its typed error."""
        return await asyncio.shield(self._end)

    def stop(self) -> None:
        """Request the end: a result with the text so far."""
        if not self._end.done():
            self._cancel()

    async def cancel(self) -> T:
        """Request the end and await the result."""
        self.stop()
        return await self.result()

    async def aclose(self) -> None:
        """Request the end and wait for it, a result or an error: for :func:`contextlib.aclosing`."""
        with contextlib.suppress(LocalspecError):
            await self.cancel()

    # Called by the client.

    def feed(self, event: Event | StreamStarted) -> None:
        """Add an event."""
        if isinstance(event, StreamStarted):
            self.name = event.stream
            return
        if isinstance(event, ModelProgress):
            self._loading = self.seq < 0  # otherwise it is another model's
        else:
            self._note_load()
        if isinstance(event, StreamDelta):
            self.seq = event.seq
        self._events.put_nowait(event)

    def finish(self, end: T | Exception) -> None:
        """End the stream with a result or an error."""
        if not self._end.done():
            self._note_load()
            if isinstance(end, Exception):
                self._end.set_exception(end)
            else:
                self._end.set_result(end)
            self._events.put_nowait(None)

    def _note_load(self) -> None:
        """Note the time: the model is loaded, if it was being loaded."""
        if self._loading and self.loaded_s is None:
            self.loaded_s = time.monotonic() - self._began


class Subscription:
    """An async iterator of live events, each read once; it ends with the connection."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[LiveEvent | None] = asyncio.Queue(UNREAD)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> LiveEvent:
        event = await self._events.get()
        if event is None:
            self.feed(None)
            raise StopAsyncIteration
        return event

    def feed(self, event: LiveEvent | None) -> None:
        """Add an event; None ends the iteration after the events that wait. Called by the client."""
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(event)
