"""A WebSocket whose closing handshake always ends.

A peer that sends a close frame but keeps its end of the socket open would otherwise hold its place and its
requests for ever: the library enforces the deadline only while something is awaited.
"""

from __future__ import annotations

from websockets.asyncio.server import ServerConnection

CLOSE_S = 0.5
"""longest duration of the closing handshake, in seconds"""


class Socket(ServerConnection):
    """A connection that is aborted at the deadline of the closing handshake (``close_timeout``)."""

    _bounded = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.close_deadline is not None and not self._bounded:
            self._bounded = True
            self.loop.call_at(self.close_deadline, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # asyncio raises AttributeError if a transport that has written all and closed is aborted, which the
        # library does when it sends to a lost client.
        self.transport.abort = lambda: None  # type: ignore[method-assign]
