"""A connection to the daemon within its own process: messages in memory instead of a socket."""

from __future__ import annotations

import asyncio
from collections import deque

from websockets.exceptions import ConnectionClosedOK
from websockets.frames import Close, CloseCode

MOST = 16
"""messages that wait at an end; a sender waits for room"""


class End:
    """One end of a pipe in one event loop, made with the other end, ``peer``.

    The messages sent at one end are received at the other, in order, also after the pipe was closed.
    """

    def __init__(self, peer: End | None = None) -> None:
        self._arrived: deque[str] = deque()
        self._moved = asyncio.Event()
        """set when a message has come or gone, or the pipe was closed"""
        self._closed: Close | None = None
        self.peer = peer or End(self)

    @property
    def is_ready(self) -> bool:
        """True if :meth:`write` may be called."""
        return self._closed is None and len(self.peer._arrived) < MOST

    def write(self, message: str) -> None:
        """Send a message without waiting."""
        self.peer._arrived.append(message)
        self.peer._moved.set()

    async def drain(self) -> None:
        """Wait until the pipe is ready or closed."""
        while not self.is_ready and self._closed is None:
            self.peer._moved.clear()
            await self.peer._moved.wait()

    async def send(self, message: str) -> None:
        """Send a message once there is room. Raises :class:`ConnectionClosed`."""
        await self.drain()
        if self._closed is not None:
            raise ConnectionClosedOK(self._closed, None)
        self.write(message)

    async def recv(self) -> str:
        """Wait for the next message. Raises :class:`ConnectionClosed` after the last one."""
        while not self._arrived:
            if self._closed is not None:
                raise ConnectionClosedOK(self._closed, None)
            self._moved.clear()
            await self._moved.wait()
        self._moved.set()
        return self._arrived.popleft()

    async def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the pipe at both ends."""
        self._shut(Close(code, reason))

    def abort(self) -> None:
        """Close a pipe whose client does not read."""
        self._shut(Close(CloseCode.ABNORMAL_CLOSURE, ""))

    def _shut(self, reason: Close) -> None:
        for end in (self, self.peer):
            end._closed = end._closed or reason
            end._moved.set()
