"""A WebSocket whose closing handshake always ends.

A peer that says goodbye but keeps its end of the socket open would otherwise hold its place, and
what it asked for, for ever: the library waits for the deadline only where something is awaited.
"""

from __future__ import annotations

from websockets.asyncio.server import ServerConnection

CLOSE_S = 0.5
"""how long a client may take over the closing handshake"""


class Socket(ServerConnection):
    """Cut off at the deadline of the closing handshake (``close_timeout``)."""

    _bounded = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.close_deadline is not None and not self._bounded:
            self._bounded = True
            self.loop.call_at(self.close_deadline, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # asyncio raises AttributeError where a transport that wrote all and closed is aborted after all,
        # and the library does that to send to a client that is gone.
        self.transport.abort = lambda: None  # type: ignore[method-assign]
