"""A WebSocket whose handshakes end: the opening one gives way to newer ones, the closing one has a deadline.

A peer that sends a close frame but keeps its end of the socket open would otherwise hold its place and its
requests for ever: the library enforces the deadline only while something is awaited.
"""

from __future__ import annotations

import asyncio
from typing import Any

from websockets.asyncio.server import ServerConnection

CLOSE_S = 0.5
"""longest duration of the closing handshake, in seconds"""
PLACES = 32
"""connections of one listening socket that may be shaking hands; a newer one replaces the oldest"""

Waiting = dict[ServerConnection, None]
"""connections that are shaking hands, the oldest first"""


class Socket(ServerConnection):
    """A connection that is aborted at the deadline of the closing handshake (``close_timeout``).

    It is in ``waiting`` until it is closed, or removed there as its handshake is complete.
    """

    _bounded = False

    def __init__(self, *args: Any, waiting: Waiting, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting = waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._waiting[self] = None
        if len(self._waiting) > PLACES:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.close_deadline is not None and not self._bounded:
            self._bounded = True
            self.loop.call_at(self.close_deadline, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.pop(self, None)
        super().connection_lost(exc)
        # asyncio raises AttributeError if a transport that has written all and closed is aborted, which the
        # library does when it sends to a lost client.
        self.transport.abort = lambda: None  # type: ignore[method-assign]
