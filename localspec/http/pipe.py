"""A connection to the daemon within its own process: messages in memory instead of a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from websockets.exceptions import ConnectionClosedOK
from websockets.frames import Close, CloseCode


class End:
    """One end of a pipe in one event loop, made with the other end, ``peer``.

    The messages sent at one end are received at the other, in order, also after the pipe was closed. A sender
    never waits: both ends read each message as it comes.
    """

    is_ready = True
    on_ready: Callable[[], None]
    """never called"""

    def __init__(self, peer: End | None = None) -> None:
        self._arrived: asyncio.Queue[str | bytes | Close] = asyncio.Queue()
        self._closed: Close | None = None
        self.peer = peer or End(self)

    def write(self, message: str | bytes) -> None:
        """Send a message; one to a closed pipe is lost."""
        self.peer._arrived.put_nowait(message)

    async def send(self, message: str) -> None:
        """Send a message. Raises :class:`ConnectionClosed`."""
        if self._closed is not None:
            raise ConnectionClosedOK(self._closed, None)
        self.write(message)

    async def recv(self) -> str | bytes:
        """Wait for the next message. Raises :class:`ConnectionClosed` after the last one."""
        message = await self._arrived.get()
        if isinstance(message, Close):
            self._arrived.put_nowait(message)
            raise ConnectionClosedOK(message, None)
        return message

    async def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the pipe at both ends."""
        self._shut(Close(code, reason))

    def abort(self) -> None:
        """Close the pipe for a peer that ended without doing so."""
        self._shut(Close(CloseCode.ABNORMAL_CLOSURE, ""))

    def _shut(self, reason: Close) -> None:
        for end in (self, self.peer):
            if end._closed is None:
                end._closed = reason
                end._arrived.put_nowait(reason)
