"""The HTTP server: the application on a loopback port, in the daemon's event loop, whose methods its requests
call without a wire."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from socket import socket
from typing import Any, TypeVar

import msgspec

from localspec import home
from localspec._version import __version__
from localspec.client import Client, Stream
from localspec.client.wire import Requester, error_of
from localspec.config import WITHOUT_TOKEN, Config
from localspec.daemon import access
from localspec.daemon.daemon import Daemon
from localspec.daemon.relay import Exchange, Notified, Subscriber
from localspec.daemon.requests import Requests
from localspec.errors import INSTALL_HTTP, DaemonUnavailable, EngineError, LocalspecError
from localspec.protocol import jsonrpc, messages
from localspec.protocol.frames import Streamed
from localspec.protocol.jsonrpc import Id, ProtocolFault

T = TypeVar("T")
log = logging.getLogger(__name__)

PACKAGES = ("starlette", "uvicorn")
ANOTHER_PORT = "Run `localspec config set http.port N` (0: any free port), then `localspec daemon restart`."
BACKLOG = 128
"""connections that are accepted in one turn of the event loop, before their number is checked"""
CLOSE_S = 2
IDLE_S = 60
"""longer than clients keep a connection (5 s in httpx), so that none is closed while it is used again"""


def lacking() -> list[str]:
    return [name for name in PACKAGES if find_spec(name) is None]


@asynccontextmanager
async def serve_http(config: Config, daemon: Daemon) -> AsyncIterator[str]:
    """Serve HTTP while entered, each request as a client of the daemon; yields the address. Raises
    :class:`DaemonUnavailable` if a package is missing or the port cannot be opened."""
    try:
        import uvicorn

        from localspec.http import app, models, patience
    except ImportError as error:
        packages = " and ".join(lacking()) or error.name
        remedy = f"{INSTALL_HTTP} Then start the daemon again."
        raise DaemonUnavailable(f"the HTTP server lacks {packages}", remedy) from None
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # malformed HTTP is answered, not logged
    models.read_config()  # reads the settings now, as the daemon does, not at the first request
    listening = _listening(config.http.port)
    if config.http.without_token:
        log.warning("%s: %s", WITHOUT_TOKEN, ", ".join(config.http.without_token))
    limits = messages.WireLimits(config.daemon.max_frame, config.daemon.max_in_flight)
    info = messages.ServerInfo("localspec", __version__)
    welcome = messages.Initialized(messages.PROTOCOL, info, limits, ())
    served = app.create(
        partial(access.read, home.http_token_path()),
        lambda: Client(InProcessWire(daemon), welcome),
        config.http.without_token,
        most=max(1, config.daemon.max_connections // 2),
        origins=config.http.origins,
        hosts=config.http.hosts,
    )
    settings = uvicorn.Config(
        served,
        access_log=False,
        backlog=BACKLOG,
        date_header=False,
        http=patience.BoundedProtocol,
        lifespan="off",
        limit_concurrency=patience.CONNECTIONS,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_S,
        timeout_keep_alive=IDLE_S,
        ws="none",
    )
    settings.load()
    # Not serve(), which handles signals and wakes the process ten times a second.
    server = uvicorn.Server(settings)
    server.lifespan = settings.lifespan_class(settings)
    await server.startup(sockets=[listening])
    try:
        yield f"http://{access.address(listening)}"
    finally:
        await server.shutdown(sockets=[listening])


def _listening(port: int) -> socket:
    """The socket, and its token on the disk. Raises :class:`DaemonUnavailable`."""
    try:
        access.read_or_create(home.http_token_path())
        return access.listen(port)
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        why = "is used by another program" if is_used else f"cannot be opened: {error.strerror}"
        raise DaemonUnavailable(f"port {port} {why}", ANOTHER_PORT) from None


class InProcessWire(Requests, Requester):
    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon, Subscriber())
        self._ids = itertools.count(1)
        self.join()

    def request(self, method: str, params: object, type: type[T]) -> Stream[T]:
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
