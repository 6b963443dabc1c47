"""The daemon's life: listen, announce, answer, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import Server as Listener
from websockets.asyncio.server import ServerConnection, serve, unix_serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from localspec import home
from localspec._version import __version__
from localspec.config import Config
from localspec.daemon import files, guard, instance, loopback, supervisor, token
from localspec.daemon.connection import Connection
from localspec.daemon.daemon import Daemon
from localspec.daemon.door import keep_open, was_left_open
from localspec.daemon.guard import Gate
from localspec.daemon.pool import COMMAND
from localspec.daemon.transport import CLOSE_S, Socket
from localspec.errors import FULL
from localspec.protocol.messages import PROTOCOL, SUBPROTOCOL, Discovery

log = logging.getLogger(__name__)

SOCKET_NAME = "daemon.sock"
SOCKET_PATH_BYTES = 103
"""the longest address of a Unix socket that every system takes"""
OPEN_S = 5.0
"""how long a handshake may take"""
DRAIN_S = 1.0
"""how long answers may go on when the daemon stops"""
DRAIN_STEP_S = 0.02
END_S = 1.0
"""how long requests that are cancelled then may take to end"""


class Server:
    """One daemon, from its first listening socket to its last."""

    def __init__(
        self, config: Config, worker_command: tuple[str, ...] = COMMAND, *, http: bool = False
    ) -> None:
        self._config = config
        self._door: asyncio.Task[None] | None = None
        self._daemon = Daemon(config, worker_command)
        self._daemon.http_flag = http
        self._listeners: list[Listener] = []

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM, SIGINT or ``daemon/shutdown``; ``on_ready`` is called once it listens."""
        daemon = self._daemon
        await daemon.history.open()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(daemon.history.close)
            # The door is closed last: what streams there ends as everything else does.
            stack.push_async_callback(self._close_door)
            stack.push_async_callback(self._stop)
            await self._listen()
            daemon.http_flag |= was_left_open()
            if daemon.http_flag or self._config.http.enabled:
                self._door = asyncio.create_task(keep_open(daemon))
            _on_signals(daemon.stopping.set)
            on_ready()
            log.info("localspec %s listens on %s and %s", __version__, daemon.socket, daemon.url)
            await daemon.stopping.wait()

    # Listening.

    async def _listen(self) -> None:
        daemon = self._daemon
        token_path = home.token_path()
        secret = _secret(token_path)
        daemon.socket = await self._listen_unix(secret)
        daemon.url = await self._listen_tcp(secret)
        instance.announce(
            Discovery(os.getpid(), __version__, PROTOCOL, daemon.socket, daemon.url, str(token_path))
        )

    async def _listen_unix(self, secret: str) -> str | None:
        path = home.runtime_dir() / SOCKET_NAME
        if not hasattr(socket, "AF_UNIX"):
            return None
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            log.warning("%s is too long for a Unix socket: TCP only", path)
            return None
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        path.chmod(0o600)
        await self._serve(listening, Gate(False, secret, self._origins()))
        return str(path)

    async def _listen_tcp(self, secret: str) -> str:
        try:
            listening = loopback.listen(self._config.daemon.port)
        except OSError as error:
            log.warning("port %d cannot be used (%s): another one", self._config.daemon.port, error.strerror)
            listening = loopback.listen(0)
        await self._serve(listening, Gate(True, secret, self._origins()))
        return f"ws://{loopback.HOST}:{listening.getsockname()[1]}"

    async def _serve(self, listening: socket.socket, gate: Gate) -> None:
        limits = self._config.daemon
        start = serve if gate.tcp else unix_serve
        self._listeners.append(
            await start(
                self._handle,
                sock=listening,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                process_request=lambda connection, request: self._admit(connection, request, gate),
                compression=None,
                max_size=limits.max_frame,
                ping_interval=limits.ping_interval_s,
                ping_timeout=limits.ping_interval_s,
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                server_header=None,
                create_connection=Socket,
            )
        )

    def _origins(self) -> frozenset[str]:
        return frozenset(self._config.http.origins)

    # Letting in.

    def _admit(self, connection: ServerConnection, request: Request, gate: Gate) -> Response | None:
        """Answer plain HTTP, refuse, or (None) let the upgrade go on."""
        path = request.path.partition("?")[0]
        refused = guard.refusal(request.method, path, request.headers, gate)
        if refused is not None:
            status, sentence = refused
            return connection.respond(status, f"{sentence}\n")
        if path == guard.HEALTH_PATH:
            return connection.respond(HTTPStatus.OK, "ok\n")
        if path == guard.METRICS_PATH:
            return connection.respond(HTTPStatus.OK, self._daemon.metrics.text())
        if len(self._daemon.connections) >= files.connections(self._config.daemon.max_connections):
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections are open.\n")
        return None

    async def _handle(self, socket: ServerConnection) -> None:
        await Connection(socket, self._daemon).serve()

    # Stopping.

    async def _stop(self) -> None:
        """Take the announcement back, let answers end or cancel them, end the workers, close every socket.

        From the first moment on new requests are refused; what was generated is stored and sent.
        """
        daemon = self._daemon
        daemon.stopping.set()
        # Before anybody can see it end: whoever then asks for the service to start gets a new one.
        supervisor.tell("STOPPING=1")
        instance.withdraw()
        for listener in self._listeners:
            listener.close(close_connections=False)
        await self._drain()
        ending = [connection.end_requests() for connection in daemon.connections]
        ended = asyncio.gather(*ending, daemon.streams.close())
        await asyncio.wait([ended], timeout=END_S)
        # Requests that did not end are failed by the end of their worker.
        await daemon.pool.close()
        await asyncio.wait([ended], timeout=END_S)
        reason = "the daemon is stopping"
        await asyncio.gather(*(c.close(CloseCode.GOING_AWAY, reason) for c in tuple(daemon.connections)))
        closing = [asyncio.create_task(listener.wait_closed()) for listener in self._listeners]
        if closing:
            # Whoever has not finished the handshake by now is not waited for.
            await asyncio.wait(closing, timeout=END_S)
        if daemon.socket is not None:
            Path(daemon.socket).unlink(missing_ok=True)
        log.info("stopped")

    async def _close_door(self) -> None:
        if self._door is not None:
            self._door.cancel()
            await asyncio.wait([self._door])

    async def _drain(self) -> None:
        """Answers that are nearly done are done in a moment."""
        until = time.monotonic() + DRAIN_S
        while self._daemon.busy and time.monotonic() < until:
            await asyncio.sleep(DRAIN_STEP_S)


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def _secret(path: Path) -> str:
    """The token for TCP. Where the disk is full it is one that nobody can read: only the socket is left."""
    try:
        return token.read_or_create(path)
    except OSError as error:
        if error.errno not in FULL:
            raise
        log.warning("%s cannot be written (%s): no client comes in by TCP", path, error.strerror)
        return secrets.token_hex()
