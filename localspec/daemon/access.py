"""Access to the daemon: bounds on connections of its wire; the socket of its HTTP server, and the token for
that: of 256 bits, the user's, kept across restarts."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.protocol import State

from localspec import home

LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/,*]+")
HOST = "127.0.0.1"
TOKEN = re.compile(r"[0-9a-f]{64}")
CLOSE_S = 0.5
"""longest duration of the closing handshake, in seconds"""


def is_listed(origin: str, origins: Collection[str]) -> bool:
    """Return True if ``origin`` is one of ``origins``; of these ``scheme://*`` stands for every host."""
    parts = ORIGIN.fullmatch(origin)
    return origin in origins or (parts is not None and f"{parts[1]}*" in origins)


def bearers(authorizations: Iterable[str]) -> list[str]:
    """The bearer tokens of ``Authorization`` headers; an empty string for one of another scheme."""
    values = (value.strip().partition(" ") for value in authorizations)
    return [value.strip() if scheme.lower() == "bearer" else "" for scheme, _, value in values]


def is_token(shown: list[str], token: str) -> bool:
    """Return True if tokens were sent and all are right: a wrong one among several refuses the request."""
    # Each is compared in constant time, and all are compared.
    return bool(shown) and all([hmac.compare_digest(one.encode(), token.encode()) for one in shown])


def listen(port: int) -> socket.socket:
    """Open a TCP socket that listens at ``port``, 0 for any free port. Its connections send without delay
    (TCP_NODELAY): asyncio sets that only for sockets made with the protocol's number, and a second small
    packet would wait 40 ms for the first one's acknowledgement. Raises :class:`OSError`."""
    listening = socket.create_server((HOST, port))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"{host}:{port}"


def read_or_create(path: Path) -> str:
    """The token in ``path``; a missing or damaged one, or one readable by others, is replaced."""
    token = read(path)
    return create(path) if token is None else token


def create(path: Path) -> str:
    home.write_private(path, secrets.token_hex(32))
    token = read(path)
    if token is None:
        raise PermissionError(f"{path} stays readable by other users")
    return token


def read(path: Path) -> str | None:
    """The token in ``path``; None if it cannot be read, or if other users can read it."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return None
            token = file.read(65)
    except OSError:
        return None
    return token if TOKEN.fullmatch(token) else None


class Socket(ServerConnection):
    """A connection that is aborted at the deadline of the closing handshake (``close_timeout``), and at once
    if ``made``, the connections of its server, has more than ``most``, those shaking hands included. A peer
    that sends a close frame but keeps its end of the socket open would otherwise hold its place and its
    requests for ever: the library enforces the deadline only while something is awaited."""

    _bounded = False

    def __init__(self, *args: Any, made: set[ServerConnection], most: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._made, self._most = made, most
        self.on_ready: Callable[[], None] = lambda: None

    @property
    def is_ready(self) -> bool:
        """True if the client keeps up: :meth:`write` may be called."""
        return not self.paused and self.state is State.OPEN

    def write(self, message: bytes) -> None:
        self.protocol.send_text(message)
        self.send_data()

    def abort(self) -> None:
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.on_ready()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made.add(self)
        if len(self._made) > self._most:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.close_deadline is not None and not self._bounded:
            self._bounded = True
            self.loop.call_at(self.close_deadline, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._made.discard(self)
        super().connection_lost(exc)
        # asyncio raises AttributeError if a transport that has written all and closed is aborted, which the
        # library does when it sends to a lost client.
        self.transport.abort = lambda: None  # type: ignore[method-assign]
