"""The HTTP server: the application on a loopback port, in the daemon's event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from socket import socket
from typing import Any

from websockets.exceptions import ConnectionClosedOK
from websockets.frames import Close, CloseCode

from localspec import home
from localspec.client import Client
from localspec.client.client import initialized
from localspec.config import WITHOUT_TOKEN, Config
from localspec.daemon import access
from localspec.errors import INSTALL_HTTP, DaemonUnavailable

log = logging.getLogger(__name__)

PACKAGES = ("starlette", "uvicorn")
ANOTHER_PORT = "Run `localspec config set http.port N` (0: any free port), then `localspec daemon restart`."
BACKLOG = 128
"""connections that are accepted in one turn of the event loop, before their number is checked"""
CLOSE_S = 2
IDLE_S = 60
"""longer than clients keep a connection (5 s in httpx), so that none is closed while it is used again"""


class End:
    """One end of a connection to the daemon in memory, made with the other end, ``peer``, in one event loop.

    The messages sent at one end are received at the other, in order, also after the pipe was closed. A sender
    never waits: both ends read each message as it comes.
    """

    is_ready = True
    on_ready: Callable[[], None]
    """never called"""

    def __init__(self, peer: End | None = None) -> None:
        self._arrived: asyncio.Queue[str | bytes | Close] = asyncio.Queue()
        self._closed: Close | None = None
        self.peer = peer or End(self)

    def write(self, message: str | bytes) -> None:
        """Send a message; one to a closed pipe is lost."""
        self.peer._arrived.put_nowait(message)

    async def send(self, message: str) -> None:
        """Send a message. Raises :class:`ConnectionClosed`."""
        if self._closed is not None:
            raise ConnectionClosedOK(self._closed, None)
        self.write(message)

    async def recv(self) -> str | bytes:
        """Wait for the next message. Raises :class:`ConnectionClosed` after the last one."""
        message = await self._arrived.get()
        if isinstance(message, Close):
            self._arrived.put_nowait(message)
            raise ConnectionClosedOK(message, None)
        return message

    async def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the pipe at both ends."""
        self._shut(Close(code, reason))

    def abort(self) -> None:
        """Close the pipe for a peer that ended without doing so."""
        self._shut(Close(CloseCode.ABNORMAL_CLOSURE, ""))

    def _shut(self, reason: Close) -> None:
        for end in (self, self.peer):
            if end._closed is None:
                end._closed = reason
                end._arrived.put_nowait(reason)


Join = Callable[[End], Coroutine[Any, Any, None]]
"""serves an end of a pipe like the socket of a client, until it is closed"""


def lacking() -> list[str]:
    """The packages that the HTTP server needs and that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


@asynccontextmanager
async def served(config: Config, join: Join) -> AsyncIterator[str]:
    """Serve HTTP while entered, each request on a pipe that ``join`` serves; yields the address.

    Raises :class:`DaemonUnavailable` if a package is missing or the port cannot be opened.
    """
    try:
        import uvicorn

        from localspec.http.app import create
        from localspec.http.models import configured
        from localspec.http.patience import CONNECTIONS, Bounded
    except ImportError as error:
        packages = " and ".join(lacking()) or error.name
        remedy = f"{INSTALL_HTTP} Then start the daemon again."
        raise DaemonUnavailable(f"the HTTP server lacks {packages}", remedy) from None
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # malformed HTTP is answered, not logged
    configured()  # reads the settings now, as the daemon does, not at the first request
    listening = _listening(config.http.port)
    if config.http.without_token:
        log.warning("%s: %s", WITHOUT_TOKEN, ", ".join(config.http.without_token))
    joined: set[asyncio.Task[None]] = set()

    async def connected() -> Client:
        """Return a client of the daemon on a pipe of its own."""
        end = End()
        joined.add(task := asyncio.create_task(join(end.peer)))
        task.add_done_callback(joined.discard)
        task.add_done_callback(lambda _: end.abort())
        return await initialized(end, "http")

    app = create(
        partial(access.read, home.http_token_path()),
        connected,
        config.http.without_token,
        most=max(1, config.daemon.max_connections // 2),
        origins=config.http.origins,
        hosts=config.http.hosts,
    )
    settings = uvicorn.Config(
        app,
        access_log=False,
        backlog=BACKLOG,
        date_header=False,
        http=Bounded,
        lifespan="off",
        limit_concurrency=CONNECTIONS,
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
        if joined:  # their clients are closed
            await asyncio.wait(joined, timeout=CLOSE_S)


def _listening(port: int) -> socket:
    """The socket, and its token on the disk. Raises :class:`DaemonUnavailable`."""
    try:
        access.read_or_create(home.http_token_path())
        return access.listen(port)
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        why = "is used by another program" if is_used else f"cannot be opened: {error.strerror}"
        raise DaemonUnavailable(f"port {port} {why}", ANOTHER_PORT) from None
