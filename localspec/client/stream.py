"""One request in the daemon, as its client sees it: events, a result, a way to stop it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args

from localspec.errors import LocalspecError
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
        """End the request, and wait for that, whether any event was read or not."""
        await self._stream.aclose()


class Stream(Generic[T]):
    """Iterate over it, or over :meth:`events`, once; :meth:`result` may be awaited at any time.

    Whoever loses interest says so with :meth:`cancel`, :meth:`stop` or :meth:`aclose`, also before anything
    was read; otherwise the request goes on.
    """

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

    def __aiter__(self) -> Reading[StreamDelta]:
        """The text as it comes; ends with the request, and raises what it failed with."""
        return Reading(self, StreamDelta)

    def events(self) -> Reading[Event]:
        """All that the daemon tells about the request: loading, queueing, prefill, text."""
        return Reading(self, *get_args(Event))

    async def next_event(self) -> Event:
        """The next event. Raises what the request failed with, and :class:`StopAsyncIteration` at the end."""
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            if self._end.done():
                self._end.result()
            raise StopAsyncIteration
        return event

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

    async def aclose(self) -> None:
        """Ask for the end and wait for it, whatever it is: for :func:`contextlib.aclosing`."""
        with contextlib.suppress(LocalspecError):
            await self.cancel()

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
