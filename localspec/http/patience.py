"""Connections on which nothing comes: each waits so long for a request, and there are but so many."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""for all of a request's head; uvicorn itself waits for ever"""
MOST = 256


class Impatient(H11Protocol):
    """Closes connections that ask nothing, or slowly, and at once those above :data:`MOST`; one that was
    answered may be idle for as long as uvicorn lets it."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= MOST:
            transport.abort()
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asked():
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self in self.connections:  # else it was one too many, and never made
            super().connection_lost(exc)

    def _is_asked(self) -> bool:
        """Whether a request's head is there, and not yet all of its answer."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
