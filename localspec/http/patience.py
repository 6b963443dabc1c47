"""Bounds on HTTP connections: their number, silent ones, and answers that are not read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""the time in which a request's head must arrive; uvicorn itself waits for ever"""
PROGRESS_S = 20.0
"""a connection is aborted if the client reads nothing of a waiting answer for so long"""
CONNECTIONS = 128
"""the number of open connections; requests on further ones are answered with status 503"""
REFUSED = 2 * CONNECTIONS
"""the number from which on further ones are closed unread: they are files of the daemon's process"""


class Bounded(H11Protocol):
    """HTTP/1.1 on one connection; closes it if a request is missing or slow, or if its answer is not read.

    After an answer it may be idle for as long as uvicorn permits."""

    _waiting: asyncio.TimerHandle | None = None
    _watching: asyncio.TimerHandle | None = None
    _progress: tuple[int, int] | None = None
    _drained = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > REFUSED:
            transport.abort()
            return
        self._wait()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def resume_writing(self) -> None:
        self._drained += 1
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._watching is not None:
            self._watching.cancel()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        """Return True if a request's head has arrived and its answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _watch(self) -> None:
        """Abort the connection, even a closing one, if output waits and nothing was read since last time."""
        unsent = self.transport.get_write_buffer_size()
        progress = (self._drained, unsent) if unsent else None
        if progress is not None and progress == self._progress:
            self.transport.abort()
            return
        self._progress = progress
        self._watching = self.loop.call_later(PROGRESS_S, self._watch)
