"""A WebSocket of which a server has a limited number, and whose closing handshake has a deadline.

A peer that sends a close frame but keeps its end of the socket open would otherwise hold its place and its
requests for ever: the library enforces the deadline only while something is awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.protocol import State

CLOSE_S = 0.5
"""longest duration of the closing handshake, in seconds"""


class Socket(ServerConnection):
    """A connection that is aborted at the deadline of the closing handshake (``close_timeout``), and at once
    if ``made``, the connections of its server, has more than ``most``, those shaking hands included."""

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
        """Send a text without waiting."""
        self.protocol.send_text(message)
        self.send_data()

    def abort(self) -> None:
        """Close the connection at once."""
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
