"""One client's messages, by a WebSocket or in memory."""

from __future__ import annotations

import contextlib
from typing import Protocol

from websockets.asyncio.server import ServerConnection
from websockets.protocol import State


class Socket(Protocol):
    """A client's connection as its outbox and its requests use it."""

    @property
    def is_ready(self) -> bool:
        """True if the client keeps up: :meth:`write` may be called."""

    def write(self, message: str) -> None:
        """Send a message without waiting."""

    async def drain(self) -> None:
        """Wait until the client has read enough, or is lost."""

    async def send(self, message: str) -> None:
        """Send a message, waiting for the client. Raises :class:`ConnectionClosed`."""

    async def recv(self) -> str | bytes:
        """Wait for the next message. Raises :class:`ConnectionClosed`."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, and wait for the client to do so, too."""

    def abort(self) -> None:
        """Close the connection at once."""


class WebSocket:
    """A client on a listening socket."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self.send, self.recv, self.close = socket.send, socket.recv, socket.close

    @property
    def is_ready(self) -> bool:
        return not self._socket.paused and self._socket.state is State.OPEN

    def write(self, message: str) -> None:
        self._socket.protocol.send_text(message.encode())
        self._socket.send_data()

    async def drain(self) -> None:
        if self._socket.paused:
            with contextlib.suppress(OSError):  # of a lost connection: sending raises ConnectionClosed
                await self._socket.drain()

    def abort(self) -> None:
        self._socket.transport.abort()
