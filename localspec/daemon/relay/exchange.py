"""The receivers of a generation's events: a request with its one response, or work without a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec

from localspec.daemon.relay.outbox import Outbox
from localspec.errors import Gone, LocalspecError
from localspec.protocol import jsonrpc
from localspec.protocol.events import RoundEvent
from localspec.protocol.frames import DELTA, LIVE, Loading, Streamed
from localspec.protocol.jsonrpc import Id, ProtocolFault
from localspec.protocol.messages import ModelProgress


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
    def cancelled_by(self, stop: Callable[[], None]) -> Iterator[None]:
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
            with self.cancelled_by(lambda: None if scope.expired() else scope.reschedule(now())):
                yield

    @asynccontextmanager
    async def needed(
        self, cancelled: str, remedy: str = "Send the request again if it is still needed."
    ) -> AsyncIterator[None]:
        """A context for a wait, which a cancel ends with :class:`Gone` of this message."""
        try:
            async with self.waiting():
                yield
        except TimeoutError:
            raise Gone(cancelled, remedy) from None

    @property
    def watched(self) -> bool:
        """True if a record of each round is requested."""
        return False

    def take(self, event: Streamed) -> None:
        """Take an event of the worker."""

    def model_progress(self, model: str, frame: Loading) -> None:
        """Report the progress of a model's load."""


class Exchange(Receiver):
    """Sends the messages of one request, and ends the request when it is cancelled.

    ``client``: the outbox of the connection, by which the connection is known.
    """

    def __init__(self, id: Id, client: Outbox) -> None:
        super().__init__()
        self.id = id
        self.client = client
        self.on_lost: Callable[[], None] = self.cancel
        """called when the client is lost: a stream may go on without it, anything else is cancelled"""
        self._id = msgspec.json.encode(id)
        self._delta = _head(DELTA, self._id) + b'"seq":'

    @property
    def watched(self) -> bool:
        """True if the client has subscribed to rounds."""
        return RoundEvent.__struct_config__.tag in self.client.kinds

    def take(self, event: Streamed) -> None:
        """Send a round to a client that watches: the only event of an answer that is not streamed."""
        if event.method == LIVE:
            self.pass_on(event)

    def pass_on(self, event: Streamed) -> None:
        """Send an event that is not a delta; a round is dropped for a client that is slow."""
        frame = b"%b%b}" % (_head(event.method, self._id), event.params[1:])
        if event.method != LIVE:
            self.client.put(frame)
        elif self.watched:
            self.client.live(frame)

    def delta(self, seq: int, params: bytes) -> None:
        """Send the delta with this number."""
        self.client.put(b"%b%d,%b}" % (self._delta, seq, params[1:]))

    def notify(self, method: str, params: object) -> None:
        self.client.put(jsonrpc.notification(method, params).encode())

    def model_progress(self, model: str, frame: Loading) -> None:
        self.notify("model/progress", ModelProgress(model, frame.stage, frame.fraction))

    def answer(self, answer: object) -> None:
        """Send the one response: a result or an error."""
        if isinstance(answer, (LocalspecError, ProtocolFault)):
            frame = jsonrpc.failure(self.id, answer)
        else:
            frame = jsonrpc.result(self.id, answer)
        self.client.put(frame.encode())


def _head(method: str, id: bytes) -> bytes:
    """The beginning of a notification, up to the first member of its params after the request."""
    return b'{"jsonrpc":"2.0","method":"%b","params":{"request":%b,' % (method.encode(), id)
