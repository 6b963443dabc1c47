"""The sockets that a daemon listens on, and the admission of clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from localspec import home
from localspec.daemon.access import guard, loopback, token
from localspec.daemon.access.guard import Gate
from localspec.daemon.access.transport import CLOSE_S, Socket
from localspec.daemon.connection import Connection
from localspec.daemon.daemon import Daemon
from localspec.protocol.messages import FULL, SUBPROTOCOL

log = logging.getLogger(__name__)

OWN_FILES = 24
"""sockets, databases and logs of the daemon itself, and the pipes of a process that it starts"""
WANTED_FILES = 4096


def raise_limit() -> None:
    """Raise the limit to :data:`WANTED_FILES` as far as the system allows; some systems begin with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_at_most(most: int) -> int:
    """The number of concurrent connections that the limit leaves files for, from 1 to ``most``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - OWN_FILES))


OPEN_S = 3.0
"""seconds that a handshake may take"""
HANDSHAKES = 32
"""connections of one listening socket that may be shaking hands while all places are taken"""


class Listeners:
    """A Unix socket for this user and, if configured, a TCP port for clients with the token."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._origins = frozenset(daemon.config.http.origins)
        self._most = connections_at_most(daemon.config.daemon.max_connections)
        """the number of clients that may be connected"""
        self._servers: list[Server] = []

    async def listen_unix(self) -> str:
        """Listen on the home's socket; returns its path."""
        path = home.socket_path()
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        path.chmod(0o600)
        await self._serve(listening, Gate(False, lambda: None, self._origins))
        return str(path)

    async def listen_tcp(self) -> str | None:
        """Listen on the port of the settings; returns its URL, or None without ``daemon.tcp``, or if the port
        cannot be used, which is logged."""
        settings, token_path = self._daemon.config.daemon, home.token_path()
        if not settings.tcp:
            return None
        try:
            token.read_or_create(token_path)
            listening = loopback.listen(settings.port)
        except OSError as error:
            log.warning("TCP port %d cannot be used: %s", settings.port, error.strerror or error)
            return None
        # The token is read each time: a new one is valid at once.
        await self._serve(listening, Gate(True, partial(token.read, token_path), self._origins))
        return f"ws://{loopback.address(listening)}"

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        for server in self._servers:
            server.close(close_connections=False)

    async def closed(self, timeout_s: float) -> None:
        """Wait for the end of the connections, at most ``timeout_s`` seconds."""
        closing = [asyncio.create_task(server.wait_closed()) for server in self._servers]
        if closing:
            await asyncio.wait(closing, timeout=timeout_s)

    async def _serve(self, listening: socket.socket, gate: Gate) -> None:
        limits = self._daemon.config.daemon
        start = serve if gate.tcp else unix_serve
        self._servers.append(
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
                create_connection=cast(Any, partial(Socket, made=set(), most=self._most + HANDSHAKES)),
            )
        )

    def _admit(self, connection: ServerConnection, request: Request, gate: Gate) -> Response | None:
        """The response to plain HTTP or a refused handshake; None to upgrade the connection."""
        path = request.path.partition("?")[0]
        refused = guard.refusal(request.method, path, request.headers, gate)
        if refused is not None:
            status, sentence = refused
            return connection.respond(status, f"{sentence}\n")
        if path == guard.HEALTH_PATH:
            return connection.respond(HTTPStatus.OK, "ok\n")
        if path == guard.METRICS_PATH:
            return connection.respond(HTTPStatus.OK, self._daemon.metrics.text())
        if len(self._daemon.connections) >= self._most:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{FULL}\n")
        return None

    async def _handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, Socket)
        await Connection(connection, self._daemon).serve()
