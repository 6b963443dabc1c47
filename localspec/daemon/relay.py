"""The events of a worker on their way to a client: streams, exchanges of requests, outboxes of clients.

The receiver of a generation's events is a request with its one response, or work without a client.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from localspec.daemon.access import Socket
from localspec.errors import Gone, InvalidOptions, LocalspecError
from localspec.protocol import jsonrpc
from localspec.protocol.frames import DELTA, Loading, Streamed
from localspec.protocol.jsonrpc import Id, ProtocolFault
from localspec.protocol.messages import NOTIFICATIONS, ModelProgress, StreamProgress, StreamStarted
from localspec.protocol.requests import Result

OVERFLOW = 16
"""multiple of the buffer's size at which a client is dropped without delay"""

Notified = StreamStarted | StreamProgress | ModelProgress
METHODS_OF = {kind: method for method, kind in NOTIFICATIONS.items()}
Work = Callable[["ResumableStream"], Coroutine[Any, Any, Result]]
KEPT_BYTES = 1024 * 1024
"""bytes of a stream's deltas that are kept for clients that resume it"""
DELTA_BYTES = 64
"""approximate size of a kept delta besides its params"""
MOST_ENDED = 64
"""ended streams that are kept at most"""

log = logging.getLogger(__name__)


class Subscriber:
    """A client, which may have subscribed to the changes of chats."""

    def __init__(self) -> None:
        self.subscribed = False


class Outbox(Subscriber):
    """The messages that wait to be sent to a client: ``limit`` bytes; ``on_slow`` is called once it has been
    full for ``patience`` seconds. Putting one in never waits, so a slow reader delays no other client."""

    def __init__(self, socket: Socket, limit: int, patience: float, on_slow: Callable[[], None]) -> None:
        super().__init__()
        self.sent = asyncio.Event()
        """set once it is closed and empty"""
        self._socket = socket
        self._limit = limit
        self._patience = patience
        self._on_slow = on_slow
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        socket.on_ready = self._flush

    def put(self, frame: bytes) -> None:
        """Send a frame, after those that wait; one for a closed outbox is lost."""
        if self._closed:
            return
        if not self._frames and self._socket.is_ready:
            self._socket.write(frame)
        else:
            self._frames.append(frame)
            self._grow(len(frame))

    def close(self, *, now: bool = False) -> None:
        """Accept no more frames. ``now`` drops those that wait."""
        self._closed = True
        if now:
            self._frames.clear()
            self._grow(-self._size)
        self._flush()

    def _flush(self) -> None:
        """Write the queue to a client that reads; the socket calls it for the rest."""
        while self._frames and self._socket.is_ready:
            frame = self._frames.popleft()
            self._grow(-len(frame))
            self._socket.write(frame)
        if self._closed and not self._frames:
            self.sent.set()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size < self._limit:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
        elif size > 0 and self._size - size >= OVERFLOW * self._limit:
            # More is added to a far too long queue; one large answer alone does not count.
            self._on_slow()
        elif self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._on_slow)


class Receiver:
    """Work that may be cancelled. This one drops the events: it is work without a client."""

    def __init__(self) -> None:
        self.cancelled = False
        self._on_cancel: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Request the end: the response still comes, with the text so far."""
        self.cancelled = True
        for stop in tuple(self._on_cancel):
            stop()

    @contextmanager
    def call_on_cancel(self, stop: Callable[[], None]) -> Iterator[None]:
        """Inside, a cancel calls ``stop``; one that came earlier calls it at once."""
        self._on_cancel.append(stop)
        try:
            if self.cancelled:
                stop()
            yield
        finally:
            self._on_cancel.remove(stop)

    @asynccontextmanager
    async def waiting(self, deadline: float | None = None) -> AsyncIterator[None]:
        """A context for a wait, which ``deadline`` (loop time) or a cancel ends with TimeoutError."""
        now = asyncio.get_running_loop().time
        async with asyncio.timeout_at(deadline) as scope:
            with self.call_on_cancel(lambda: None if scope.expired() else scope.reschedule(now())):
                yield

    @asynccontextmanager
    async def wait_while_needed(
        self, cancelled: str, remedy: str = "Send the request again if it is still needed."
    ) -> AsyncIterator[None]:
        """A context for a wait, which a cancel ends with :class:`Gone` of this message."""
        try:
            async with self.waiting():
                yield
        except TimeoutError:
            raise Gone(cancelled, remedy) from None

    def take(self, event: Streamed) -> None:
        """Take an event of the worker."""

    def model_progress(self, model: str, frame: Loading) -> None:
        """Report the progress of a model's load."""


class Exchange(Receiver):
    """One request of a ``client``: its messages, and its end when it is cancelled."""

    def __init__(self, id: Id, client: Subscriber) -> None:
        super().__init__()
        self.id = id
        self.client = client
        self.on_lost: Callable[[], None] = self.cancel
        """called when the client is lost: a stream may go on without it, anything else is cancelled"""

    def model_progress(self, model: str, frame: Loading) -> None:
        self.notify(ModelProgress(model, frame.stage, frame.fraction))

    def pass_on(self, event: Streamed) -> None:
        """Send an event that is not a delta."""
        raise NotImplementedError

    def delta(self, seq: int, params: bytes) -> None:
        raise NotImplementedError

    def notify(self, event: Notified) -> None:
        """Send an event of the daemon's own."""
        raise NotImplementedError

    def answer(self, answer: object) -> None:
        """Send the one response: a result or an error."""
        raise NotImplementedError


class WireExchange(Exchange):
    """One request of a connection, whose messages are frames in its outbox."""

    def __init__(self, id: Id, client: Outbox) -> None:
        super().__init__(id, client)
        self._outbox = client
        self._id = msgspec.json.encode(id)
        self._delta = _head(DELTA, self._id) + b'"seq":'

    def pass_on(self, event: Streamed) -> None:
        self._outbox.put(b"%b%b}" % (_head(event.method, self._id), event.params[1:]))

    def delta(self, seq: int, params: bytes) -> None:
        self._outbox.put(b"%b%d,%b}" % (self._delta, seq, params[1:]))

    def notify(self, event: Notified) -> None:
        self._outbox.put(jsonrpc.notification(METHODS_OF[type(event)], event).encode())

    def answer(self, answer: object) -> None:
        if isinstance(answer, (LocalspecError, ProtocolFault)):
            frame = jsonrpc.failure(self.id, answer)
        else:
            frame = jsonrpc.result(self.id, answer)
        self._outbox.put(frame.encode())


def _head(method: str, id: bytes) -> bytes:
    """The beginning of a notification, up to the first member of its params after the request."""
    return b'{"jsonrpc":"2.0","method":"%b","params":{"request":%b,' % (method.encode(), id)


class ResumableStream(Receiver):
    """One generation, its deltas numbered from 0, sent to its follower. That of a session goes on without one
    for the ``grace`` of ``streams``."""

    def __init__(self, streams: Streams, session: str | None) -> None:
        super().__init__()
        self._streams = streams
        self.id = secrets.token_hex(16)
        self.session = session
        self.message: int | None = None
        """the id of the answer's message; None until its turn has begun"""
        self.task: asyncio.Task[Result]
        self._deltas: deque[bytes] = deque()
        """the params of the last deltas, as in :class:`Streamed`"""
        self._size = 0
        self._next = 0
        """the number of the next delta"""
        self.follower: Exchange | None = None
        self._left: asyncio.Future[Result]
        """gets an error when the follower is replaced or lost"""
        self._alarm: asyncio.TimerHandle | None = None

    async def follow(self, exchange: Exchange, after_seq: int = -1) -> Result:
        """Send ``exchange`` the deltas after ``after_seq`` and all later events; returns the result. The
        follower before it gets :class:`Gone`, and so does this one when another takes over. Raises the
        generation's error, :class:`Gone` for deltas that are no longer kept, and :class:`InvalidOptions` if
        there is no delta ``after_seq`` yet; then nothing is changed."""
        if after_seq >= self._next:
            raise InvalidOptions(
                f"after_seq is {after_seq}, but only {self._next} deltas were sent, numbered from 0",
                "Give the number of the last delta that was received, or -1.",
            )
        first = self._next - len(self._deltas)
        if after_seq + 1 < first:
            raise Gone(f"the deltas after number {after_seq} are no longer kept")
        if self.follower is not None:
            self._leave("another request has resumed the stream")
        self._cancel_alarm()
        self.follower, left = exchange, asyncio.get_running_loop().create_future()
        self._left = left
        for seq, params in enumerate(self._deltas, first):
            if seq > after_seq:
                exchange.delta(seq, params)
        exchange.on_lost = lambda: self._lose(exchange)
        with exchange.call_on_cancel(self.cancel):
            await asyncio.wait({self.task, left}, return_when=asyncio.FIRST_COMPLETED)
        return left.result() if left.done() else self.task.result()

    def take(self, event: Streamed) -> None:
        """Keep a delta; send the follower any event."""
        if event.method != DELTA:
            if self.follower is not None:
                self.follower.pass_on(event)
            return
        if self.follower is not None:
            self.follower.delta(self._next, event.params)
        self._next += 1
        self._deltas.append(event.params)
        self._size += len(event.params) + DELTA_BYTES
        while self._size > KEPT_BYTES:
            self._size -= len(self._deltas.popleft()) + DELTA_BYTES

    def model_progress(self, model: str, frame: Loading) -> None:
        if self.follower is not None:
            self.follower.model_progress(model, frame)

    def _leave(self, why: str) -> None:
        self.follower = None
        self._left.set_exception(Gone(why, "Resume the stream, or send the request again."))
        self._left.exception()  # marks it as retrieved, as it may never be awaited

    def _lose(self, exchange: Exchange) -> None:
        if self.follower is not exchange:
            return
        self._leave("the client's connection was lost")
        if self.task.done():
            return
        if self.session is None or not self._streams.grace:
            self.cancel()
        else:
            self._alarm = asyncio.get_running_loop().call_later(self._streams.grace, self._give_up)

    def _give_up(self) -> None:
        self._streams.drop(self)
        self.cancel()

    def on_end(self, task: asyncio.Task[Result]) -> None:
        self._cancel_alarm()
        error = None if task.cancelled() else task.exception()
        if self.follower is None and error is not None and not isinstance(error, LocalspecError):
            log.error("an answer without a client failed", exc_info=error)
        self._streams.on_end(self)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class Streams:
    """The streams that run, and for ``grace`` seconds those that have ended. ``busy`` is the set of work that
    needs a model, which a running stream is part of."""

    def __init__(self, grace: float, busy: set[object]) -> None:
        self.grace = grace
        self._busy = busy
        self.running: set[ResumableStream] = set()
        self._known: dict[str, ResumableStream] = {}
        self._ended: dict[str, asyncio.TimerHandle] = {}

    async def run(self, exchange: Exchange, work: Work, session: str | None = None) -> Result:
        """Run ``work`` as a stream that ``exchange`` follows from its start; returns the result."""
        stream = ResumableStream(self, session)
        exchange.notify(StreamStarted(exchange.id, stream.id))
        exchange.notify(StreamProgress(exchange.id, "queued", 0.0))
        # It takes the place of its request.
        self._busy.discard(exchange)
        self._busy.add(stream)
        self._known[stream.id] = stream
        self.running.add(stream)
        stream.task = asyncio.create_task(work(stream))
        stream.task.add_done_callback(stream.on_end)
        return await stream.follow(exchange)

    def find(self, id: str) -> ResumableStream:
        """The stream of this id; raises :class:`Gone`."""
        if (stream := self._known.get(id)) is None:
            raise Gone(f"the stream {id[:40]!r} does not exist, or is no longer kept after its end")
        return stream

    def find_unfollowed(self, session: str) -> dict[int, str]:
        """The ids of the running streams of ``session`` without a follower, by their answer's message id."""
        streams = (each for each in self.running if each.session == session and each.follower is None)
        return {each.message: each.id for each in streams if each.message is not None}

    async def end(self, session: str) -> None:
        """Cancel the streams of ``session``, wait for their ends, and drop them."""
        of_session = [stream for stream in self._known.values() if stream.session == session]
        await self._cancel([stream for stream in self.running if stream.session == session])
        for stream in of_session:
            self.drop(stream)

    async def close(self) -> None:
        await self._cancel(list(self.running))

    async def _cancel(self, streams: list[ResumableStream]) -> None:
        for stream in streams:
            stream.cancel()
        if streams:
            await asyncio.wait([stream.task for stream in streams])

    def on_end(self, stream: ResumableStream) -> None:
        """Keep an ended ``stream`` for a while: a client that missed the end may resume it."""
        self._busy.discard(stream)
        self.running.discard(stream)
        if stream.id not in self._known:
            return
        if not self.grace:
            self.drop(stream)
            return
        loop = asyncio.get_running_loop()
        self._ended[stream.id] = loop.call_later(self.grace, self.drop, stream)
        if len(self._ended) > MOST_ENDED:
            self.drop(self._known[next(iter(self._ended))])

    def drop(self, stream: ResumableStream) -> None:
        """Forget ``stream``: it cannot be resumed any more."""
        self._known.pop(stream.id, None)
        if (timer := self._ended.pop(stream.id, None)) is not None:
            timer.cancel()
