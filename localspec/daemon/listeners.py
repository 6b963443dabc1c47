"""The sockets that a daemon listens on, and the admission of clients."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from localspec import home
from localspec.daemon import files
from localspec.daemon.access import guard, loopback, token
from localspec.daemon.access.challenge import authenticated
from localspec.daemon.access.guard import Gate
from localspec.daemon.access.transport import CLOSE_S, Socket, Waiting
from localspec.daemon.connection import Connection
from localspec.daemon.daemon import Daemon
from localspec.protocol.handshake import LONGEST_UNPROVED
from localspec.protocol.messages import FULL, SUBPROTOCOL

log = logging.getLogger(__name__)

SOCKET_NAME = "daemon.sock"
SOCKET_PATH_BYTES = 103
"""the longest address of a Unix socket that every system accepts"""
OPEN_S = 3.0
"""seconds that a handshake may take, without the proof of the token that follows it"""


class Listeners:
    """A Unix socket for this user and a TCP port for clients with the token."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._servers: list[Server] = []

    async def listen_unix(self) -> str | None:
        """Listen on the home's socket; returns its path, or None if there can be none."""
        path = home.runtime_dir() / SOCKET_NAME
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            log.warning("%s is too long for a Unix socket: the daemon listens on TCP only", path)
            return None
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        path.chmod(0o600)
        await self._serve(listening, Gate(False, lambda: None, self._origins()))
        return str(path)

    async def listen_tcp(self, token_path: Path) -> str | None:
        """Listen on the port of the settings, or another one; returns its URL, or None if no port can be
        opened and the Unix socket is used alone. Raises :class:`OSError`."""
        port = self._daemon.config.daemon.port
        try:
            listening = self._opened(port)
        except OSError as error:
            if self._daemon.socket is None:
                raise
            log.warning(
                "no TCP port can be opened (%s): the daemon listens on its Unix socket only", error.strerror
            )
            return None
        address = loopback.address(listening)
        # The token is read each time: a new one is valid at once.
        await self._serve(listening, Gate(True, partial(_token, token_path), self._origins()))
        return f"ws://{address}"

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        for server in self._servers:
            server.close(close_connections=False)

    async def closed(self, timeout_s: float) -> None:
        """Wait for the end of the connections, at most ``timeout_s`` seconds."""
        closing = [asyncio.create_task(server.wait_closed()) for server in self._servers]
        if closing:
            await asyncio.wait(closing, timeout=timeout_s)

    def _opened(self, port: int) -> socket.socket:
        try:
            return loopback.listen(port)
        except OSError as error:
            if error.errno in loopback.LACKING:
                raise
            log.warning("port %d cannot be used (%s): a free one is used instead", port, error.strerror)
            return loopback.listen(0)

    async def _serve(self, listening: socket.socket, gate: Gate) -> None:
        limits, waiting = self._daemon.config.daemon, Waiting()
        start = serve if gate.tcp else unix_serve
        self._servers.append(
            await start(
                lambda connection: self._handle(connection, gate, waiting),
                sock=listening,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                process_request=lambda connection, request: self._admit(connection, request, gate),
                compression=None,
                max_size=LONGEST_UNPROVED,
                ping_interval=limits.ping_interval_s,
                ping_timeout=limits.ping_interval_s,
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                server_header=None,
                create_connection=cast(Any, partial(Socket, waiting=waiting)),
            )
        )

    def _origins(self) -> frozenset[str]:
        return frozenset(self._daemon.config.http.origins)

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
        if len(self._daemon.connections) >= files.connections(self._daemon.config.daemon.max_connections):
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{FULL}\n")
        if not gate.tcp or guard.nonce_of(request.headers) is None:
            self._trust(connection)  # before the answer: no frame may come earlier
        return None

    def _trust(self, connection: ServerConnection) -> None:
        """Accept messages up to the daemon's ``max_frame`` from now on."""
        connection.protocol.max_message_size = self._daemon.config.daemon.max_frame

    async def _handle(self, connection: ServerConnection, gate: Gate, waiting: Waiting) -> None:
        if not await self._is_known(connection, gate):
            return
        waiting.pop(connection, None)
        await Connection(connection, self._daemon).serve()

    async def _is_known(self, connection: ServerConnection, gate: Gate) -> bool:
        """Return True if the client is authenticated: by the Unix socket, by the token, or by a proof of it.

        A token in the handshake was checked by :meth:`_admit`; a proof is awaited here.
        """
        nonce = guard.nonce_of(connection.request.headers) if connection.request is not None else None
        if not gate.tcp or nonce is None:
            return True
        secret, port = gate.token(), connection.local_address[1]
        if secret is None or not await authenticated(connection, nonce, secret, port):
            return False
        self._trust(connection)
        return True


def _token(path: Path) -> str | None:
    """The current token in ``path``; None if there is none or it cannot be read."""
    try:
        return token.read(path)
    except OSError:
        return None
