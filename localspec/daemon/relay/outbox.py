"""The messages that wait to be sent to one client, and the live events for all clients.

Putting a message in never waits, so a slow reader delays no other client: one that leaves the buffer full for
too long is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from localspec.protocol import jsonrpc
from localspec.protocol.events import LiveEvent

LIVE_SHARE = 8
"""live events are dropped once one part in so many of the buffer is filled"""
OVERFLOW = 16
"""multiple of the buffer's size at which a client is dropped without delay"""


class Socket(Protocol):
    """A client's connection, by a WebSocket or in memory."""

    on_ready: Callable[[], None]
    """called when the client has caught up"""

    @property
    def is_ready(self) -> bool:
        """True if the client keeps up: :meth:`write` may be called."""

    def write(self, message: bytes) -> None:
        """Send a message without waiting."""

    async def recv(self) -> str | bytes:
        """Wait for the next message. Raises :class:`ConnectionClosed`."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, and wait for the client to do so, too."""

    def abort(self) -> None:
        """Close the connection at once."""


class Outbox:
    """A queue of ``limit`` bytes; ``on_slow`` is called once it has been full for ``patience`` seconds.

    A client that keeps up has no queue: its messages are written at once.
    """

    def __init__(self, socket: Socket, limit: int, patience: float, on_slow: Callable[[], None]) -> None:
        self.kinds: frozenset[str] = frozenset()
        """the kinds of live events that the client has subscribed to"""
        self.sent = asyncio.Event()
        """set once it is closed and empty"""
        self._socket = socket
        self._limit = limit
        self._patience = patience
        self._on_slow = on_slow
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        socket.on_ready = self._flush

    def put(self, frame: bytes) -> None:
        """Send a frame, after those that wait; one for a closed outbox is lost."""
        if self._closed:
            return
        if not self._frames and self._socket.is_ready:
            self._socket.write(frame)
        else:
            self._frames.append(frame)
            self._grow(len(frame))

    def live(self, frame: bytes) -> None:
        """Send a frame that is only useful at once: it is dropped for a slow client."""
        if self._size < self._limit // LIVE_SHARE:
            self.put(frame)

    def close(self, *, now: bool = False) -> None:
        """Accept no more frames. ``now`` drops those that wait."""
        self._closed = True
        if now:
            self._frames.clear()
            self._grow(-self._size)
        self._flush()

    def _flush(self) -> None:
        """Write the queue to a client that reads; the socket calls it for the rest."""
        while self._frames and self._socket.is_ready:
            frame = self._frames.popleft()
            self._grow(-len(frame))
            self._socket.write(frame)
        if self._closed and not self._frames:
            self.sent.set()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size < self._limit:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
        elif size > 0 and self._size - size >= OVERFLOW * self._limit:
            # More is added to a far too long queue; one large answer alone does not count.
            self._on_slow()
        elif self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._on_slow)


class Events:
    """Events for all clients. Rounds hold token ids, which are text: they go to their own client only."""

    def __init__(self) -> None:
        self.clients: set[Outbox] = set()

    def publish(self, event: LiveEvent) -> None:
        """Send ``event`` to every subscriber of its kind."""
        frame = jsonrpc.notification("event", event).encode()
        for client in self.clients:
            if event.__struct_config__.tag in client.kinds:
                client.put(frame)
