"""Bounds on HTTP connections: their number, silent ones, and answers that are not read.

h11 bounds the head of a request and its parts, ``endpoint.py`` the body.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE_S = 10.0
"""a connection ends if the head of a request takes so long, or the client reads nothing of an answer that
waits, and after twice as long at the latest; uvicorn itself waits for ever"""
CONNECTIONS = 128
"""the number of open connections; requests on further ones are answered with status 503"""
REFUSED = 2 * CONNECTIONS
"""the number from which on further ones are closed unread: they are files of the daemon's process"""
MAX_HEAD = 64 << 10
"""bytes of a request's head, and of each of its parts that is not complete"""


class Bounded(H11Protocol):
    """HTTP/1.1 on one connection. After an answer it may be idle for as long as uvicorn permits."""

    _drained = 0
    _watching: asyncio.TimerHandle | None = None
    _state: tuple[object, ...] | None = None
    """of a connection that waits for its client; None: it does not"""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > REFUSED:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watching is not None:
            self._watching.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._drained += 1
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # what is no HTTP comes behind a request that is answered, or is being answered
            self.transport.abort()

    def _watch(self) -> None:
        """Abort the connection, even a closing one, if it waits for its client as it did last time."""
        unsent = self.transport.get_write_buffer_size()
        is_answering = self.cycle is not None and not self.cycle.response_complete
        is_waiting = unsent or not (is_answering or self.timeout_keep_alive_task)
        state = (self.cycle, self._drained, unsent) if is_waiting else None
        if state is not None and state == self._state:
            self.transport.abort()
            return
        self._state = state
        self._watching = self.loop.call_later(PATIENCE_S, self._watch)
