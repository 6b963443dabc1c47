"""The client's end of the wire: requests out, responses and notifications in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from localspec import home
from localspec.errors import DaemonUnavailable, InvalidOptions, LocalspecError, QueueFull, from_dict
from localspec.protocol import jsonrpc, messages
from localspec.protocol.jsonrpc import INVALID_PARAMS, Call, ErrorObject, Id, ProtocolFault, Response
from localspec.protocol.messages import ModelProgress, StreamDelta, StreamProgress, StreamStarted
from localspec.protocol.requests import SessionEvent

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

T = TypeVar("T")
Event = StreamProgress | StreamDelta | ModelProgress | messages.SpeculationDegraded
UNREAD = 1024
"""most events of a subscription that wait for a slow reader; beyond that the oldest are dropped"""
OPEN_S = 5.0
FULL_REMEDY = "Close other clients, or raise daemon.max_connections and run `localspec daemon restart`."
LONGEST_REFUSAL = 500
"""characters of a refusal's text"""


class Stream(Generic[T]):
    """A request, to be iterated over, or over :meth:`events`, once; :meth:`result` may be awaited at any
    time. It goes on until :meth:`cancel`, :meth:`stop` or :meth:`aclose` ends it, also if nothing is read."""

    def __init__(self, id: Id, cancel: Callable[[], None]) -> None:
        self.id = id
        self.name: str | None = None
        """the stream's id for :meth:`Client.resume`; None until the daemon has sent it"""
        self.seq = -1
        """the number of the last delta that came"""
        self.loaded_s: float | None = None
        """seconds until its model was loaded; None if it was loaded already"""
        self._began, self._loading = time.monotonic(), False
        self._cancel = cancel
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._put: Callable[[Event | None], None] = self._events.put_nowait
        self._end: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # An error that is never read must not be logged by asyncio.
        self._end.add_done_callback(lambda end: None if end.cancelled() else end.exception())

    async def __aiter__(self) -> AsyncIterator[StreamDelta]:
        """The text as it comes; ends with the request, and raises the request's error."""
        async for event in self.events():
            if isinstance(event, StreamDelta):
                yield event

    async def events(self) -> AsyncIterator[Event]:
        """All events of the request: loading, queueing, prefill, text."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)
        if self._end.done():
            self._end.result()

    def forward(self, take: Callable[[Event | T | BaseException], None]) -> None:
        """Have ``take`` called with each event, those that wait first, and at last with the result or the
        error; nothing is to be read here then."""

        def put(event: Event | None) -> None:
            take(self._end.exception() or self._end.result() if event is None else event)

        while not self._events.empty():
            put(self._events.get_nowait())
        self._put = put

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

    def feed(self, event: Event | StreamStarted) -> None:
        """Add an event. Called by the client, as :meth:`finish`."""
        if isinstance(event, StreamStarted):
            self.name = event.stream
            return
        if isinstance(event, ModelProgress):
            self._loading = self.seq < 0  # otherwise it is another model's
        else:
            self._note_load()
        if isinstance(event, StreamDelta):
            self.seq = event.seq
        self._put(event)

    def finish(self, end: T | Exception) -> None:
        if not self._end.done():
            self._note_load()
            if isinstance(end, Exception):
                self._end.set_exception(end)
            else:
                self._end.set_result(end)
            self._put(None)

    def _note_load(self) -> None:
        """Note the time: the model is loaded, if it was being loaded."""
        if self._loading and self.loaded_s is None:
            self.loaded_s = time.monotonic() - self._began


class Subscription:
    """Changes of chats to iterate over, each read once; they end with the connection."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[SessionEvent | None] = asyncio.Queue(UNREAD)

    async def __aiter__(self) -> AsyncIterator[SessionEvent]:
        while (event := await self._events.get()) is not None:
            yield event
        self.feed(None)

    def feed(self, event: SessionEvent | None) -> None:
        """Add an event; None ends the iteration after the events that wait. Called by the client."""
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(event)


async def open_socket() -> ClientConnection:
    """Connect and shake hands over the home's Unix socket. Raises :class:`DaemonUnavailable` if no daemon
    answers, and :class:`QueueFull` if it has no connection left."""
    from websockets.asyncio.client import unix_connect  # late: the chat's first frame does not wait for it
    from websockets.exceptions import InvalidHandshake, InvalidStatus
    from websockets.typing import Subprotocol

    # Not the path in the discovery file, where another user may listen by now: this one is checked.
    place = str(home.socket_path())
    try:
        return await unix_connect(
            place,
            subprotocols=[Subprotocol(messages.SUBPROTOCOL)],
            compression=None,
            max_size=None,
            open_timeout=OPEN_S,
            # The system closes the socket of an ended daemon; a daemon that is merely suspended keeps it.
            ping_interval=None,
            close_timeout=1,
            user_agent_header=None,
        )
    except InvalidStatus as error:
        sentence = (error.response.body or b"").decode(errors="replace").strip()[:LONGEST_REFUSAL]
        if sentence == messages.FULL:
            raise QueueFull("the daemon's limit of open connections is reached", FULL_REMEDY) from None
        status = error.response.status_code
        message = f"the server at {place} refused the connection with HTTP status {status}: {sentence}"
        raise DaemonUnavailable(message, "Run `localspec daemon restart`, then try again.") from None
    except (OSError, InvalidHandshake, TimeoutError, EOFError) as error:
        raise DaemonUnavailable(f"no daemon answers at {place}: {error}") from None


class Requester(Protocol):
    """The daemon, as a client sees it."""

    lost: str | None = None
    """the reason why requests fail from now on; None while they do not"""
    subscription: Subscription | None = None
    """the current subscription to events, if any"""

    def request(self, method: str, params: object, type: type[T]) -> Stream[T]:
        """Send a request whose result is a ``type``."""

    async def close(self) -> None:
        """End all requests."""

    async def wait_closed(self) -> None:
        """Wait for the end, by either side."""


class Wire(Requester):
    """Matches responses to requests; every request ends, at the latest with the connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._live: dict[Id, tuple[Stream[Any], Any]] = {}
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self.max_frame: int | None = None
        """the largest request that the daemon accepts, in bytes; None until it is initialized"""
        self._tasks = [asyncio.create_task(self._send_all()), asyncio.create_task(self._receive_all())]

    def request(self, method: str, params: object, type: type[T]) -> Stream[T]:
        id = next(self._ids)
        stream: Stream[T] = Stream(id, lambda: self.notify("$/cancelRequest", messages.CancelRequest(id=id)))
        try:
            frame = self._frame(id, method, params)
        except LocalspecError as error:
            stream.finish(error)
            return stream
        self._live[id] = stream, type
        self._outgoing.put_nowait(frame)
        return stream

    def _frame(self, id: Id, method: str, params: object) -> str:
        """A request as it is sent. Raises :class:`DaemonUnavailable`, and :class:`InvalidOptions`."""
        if self.lost is not None:
            raise DaemonUnavailable(self.lost)
        try:
            frame = jsonrpc.request(id, method, params)
        except UnicodeEncodeError:
            message = "the text is not valid Unicode: it has half of a surrogate pair"
            raise InvalidOptions(message, "Remove or replace that character.") from None
        if self.max_frame is not None and len(frame.encode()) > self.max_frame:
            raise InvalidOptions(f"the request is larger than {self.max_frame} bytes", "Send less text.")
        return frame

    def notify(self, method: str, params: object) -> None:
        self._outgoing.put_nowait(jsonrpc.notification(method, params))

    async def close(self) -> None:
        """Close the connection; requests that still run fail with :class:`DaemonUnavailable`."""
        await self._socket.close()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        sending, receiving = self._tasks
        await asyncio.wait([receiving])
        sending.cancel()
        await asyncio.wait([sending])

    async def _send_all(self) -> None:
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed):  # the receiving task reports it
            while True:
                await self._socket.send(await self._outgoing.get())

    async def _receive_all(self) -> None:
        from websockets.exceptions import ConnectionClosed

        reason = "the daemon sent an unreadable message"
        try:
            while True:
                self._receive(await self._socket.recv())
        except ConnectionClosed as error:
            closing = error.rcvd.reason if error.rcvd is not None else ""
            reason = f"the daemon is gone: {closing or 'connection lost'}"
        except (ProtocolFault, msgspec.MsgspecError) as error:
            reason = f"the server does not speak protocol {messages.PROTOCOL}: {error}"
        finally:
            self._end(reason)
            with contextlib.suppress(OSError, AttributeError):  # the transport may be gone before its closing
                await self._socket.close()

    def _end(self, reason: str) -> None:
        self.lost = reason
        for stream, _ in self._live.values():
            stream.finish(DaemonUnavailable(reason))
        self._live.clear()
        if self.subscription is not None:
            self.subscription.feed(None)

    def _receive(self, text: str | bytes) -> None:
        message = jsonrpc.decode(text)
        if isinstance(message, Call):
            self._dispatch(message)
        elif message.id is not None and message.id in self._live:
            stream, type = self._live.pop(message.id)
            stream.finish(_outcome(message, type))

    def _dispatch(self, call: Call) -> None:
        kind = messages.NOTIFICATIONS.get(call.method)
        if kind is None:
            return  # from a newer daemon
        event: Event | StreamStarted | SessionEvent = msgspec.json.decode(call.params, type=kind)
        if isinstance(event, SessionEvent):
            if self.subscription is not None:
                self.subscription.feed(event)
        elif isinstance(event, messages.ModelProgress):
            for stream, _ in self._live.values():
                stream.feed(event)
        elif event.request in self._live:
            self._live[event.request][0].feed(event)


def _outcome(response: Response, type: Any) -> Any:
    if response.error is not None:
        return error_of(response.error)
    try:
        return msgspec.json.decode(response.result or jsonrpc.EMPTY, type=type)
    except msgspec.MsgspecError as error:
        return LocalspecError(f"the daemon's answer cannot be decoded: {error}")


def error_of(error: ErrorObject) -> LocalspecError:
    """The typed error: a LocalspecError by its code, a wrong parameter as InvalidOptions, else internal."""
    if error.data is not None:
        return from_dict(error.data)
    kind = InvalidOptions if error.code == INVALID_PARAMS else LocalspecError
    return kind(error.message)
