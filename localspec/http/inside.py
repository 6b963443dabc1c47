"""The client of one HTTP request in the daemon's own process: it calls the methods, without a wire."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, TypeVar

import msgspec

from localspec.client import Stream
from localspec.client.wire import Requester, error_of
from localspec.daemon.daemon import Daemon
from localspec.daemon.relay import Exchange, Notified, Subscriber
from localspec.daemon.requests import Requests
from localspec.errors import EngineError, LocalspecError
from localspec.protocol import jsonrpc, messages
from localspec.protocol.frames import Streamed
from localspec.protocol.jsonrpc import Id, ProtocolFault

T = TypeVar("T")


class InProcessWire(Requests, Requester):
    """Takes the place of a wire for a :class:`Client`."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon, Subscriber())
        self._ids = itertools.count(1)
        self.join()

    def request(self, method: str, params: object, type: type[T]) -> Stream[T]:
        """Begin a request, whose result is a ``type``."""
        exchange = InProcessExchange(next(self._ids), self._peer)
        try:
            self.begin(exchange, method, messages.check_params(method, params))
        except (LocalspecError, ProtocolFault) as error:
            self.count_refusal(error)
            exchange.answer(error)
        return exchange.stream

    async def close(self, code: int = 0, reason: str = "") -> None:
        """End all requests; those whose worker is in a long step are not waited for."""
        self._leaving = asyncio.create_task(self.leave())
        if not self._live:
            await self._leaving

    async def wait_closed(self) -> None:
        await self.leave()


class InProcessExchange(Exchange):
    """One request, whose messages are the events of ``stream``."""

    def __init__(self, id: Id, client: Subscriber) -> None:
        super().__init__(id, client)
        self.stream: Stream[Any] = Stream(id, self.cancel)
        self._request = b'{"request":%b,' % msgspec.json.encode(id)

    def pass_on(self, event: Streamed) -> None:
        self._feed(self._request + event.params[1:], messages.NOTIFICATIONS[event.method])

    def delta(self, seq: int, params: bytes) -> None:
        self._feed(b'%b"seq":%d,%b' % (self._request, seq, params[1:]), messages.StreamDelta)

    def _feed(self, params: bytes, kind: Any) -> None:
        try:
            self.stream.feed(msgspec.json.decode(params, type=kind))
        except msgspec.ValidationError as error:  # the worker's other requests go on
            self.stream.finish(EngineError(f"an event of the worker is invalid: {error}"))
            self.cancel()

    def notify(self, event: Notified) -> None:
        self.stream.feed(event)

    def answer(self, answer: object) -> None:
        if isinstance(answer, (LocalspecError, ProtocolFault)):
            answer = error_of(jsonrpc.describe_error(answer))
        self.stream.finish(answer)
