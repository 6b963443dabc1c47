"""Connections on which nothing comes: each waits so long for a request, and there are but so many."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""for all of a request's head; uvicorn itself waits for ever"""
MOST = 256


class Impatient(H11Protocol):
    """Closes connections that ask nothing, or slowly, and at once those above :data:`MOST`."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= MOST:
            transport.abort()
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self._wait()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self in self.connections:  # else it was one too many, and never made
            super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_S, self._look)

    def _look(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
