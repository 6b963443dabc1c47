"""The messages that wait to be sent to one client.

Putting a message in never waits, so a slow reader delays no other client: adjacent deltas of a request are
merged, and a client that leaves the buffer full for too long is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from websockets.exceptions import ConnectionClosed

from localspec.daemon.relay.deltas import Deltas, Merged
from localspec.daemon.relay.socket import Socket
from localspec.protocol.results import Token

LIVE_SHARE = 8
"""live events are dropped once one part in so many of the buffer is filled"""
OVERFLOW = 16
"""multiple of the buffer's size at which a client is dropped without delay"""


class Outbox:
    """A queue of ``limit`` bytes; ``on_slow`` is called once it has been full for ``patience`` seconds."""

    def __init__(self, socket: Socket, limit: int, patience: float, on_slow: Callable[[], None]) -> None:
        self._socket = socket
        self._limit = limit
        self._patience = patience
        self._on_slow = on_slow
        self._items: deque[str | Merged | None] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._is_idle = False
        """True while :meth:`run` waits for messages, which :meth:`_flush` may then send"""
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self.sent = asyncio.Event()
        """set once :meth:`run` has ended"""

    def put(self, frame: str, after: Deltas | None = None) -> None:
        """Queue a frame; later deltas of ``after`` come after it."""
        if after is not None:
            after.seal()
        self._append(frame, len(frame))

    def live(self, frame: str) -> None:
        """Queue a frame that is only useful at once: it is dropped for a slow client."""
        if self._size < self._limit // LIVE_SHARE:
            self._append(frame, len(frame))

    def delta(self, stream: Deltas, text: str, tokens: tuple[Token, ...]) -> None:
        """Queue new text of a stream, in the delta that still waits if there is one.

        After the loss of the client it waits in the stream for a request that resumes it.
        """
        waiting = stream.open
        if waiting is None:
            waiting = stream.begin()
            self._append(waiting, 0)
        grown = waiting.add(text, tokens)
        if not self._closed:
            self._grow(grown)

    def close(self, *, now: bool = False) -> None:
        """Accept no more frames; :meth:`run` ends once all are sent. ``now`` drops those that wait."""
        if now:
            self._items.clear()
            self._grow(-self._size)
        if now or not self._closed:
            # Dropping the queue drops an earlier mark of its end as well: it is set again.
            self._closed = True
            self._items.append(None)
            self._wake()

    async def run(self) -> None:
        """Send the queued frames until closed or until the client is lost.

        A client that keeps up is served by :meth:`_flush`, at the cost of a callback for each turn of the
        event loop; this task sends the rest at the client's speed.
        """
        try:
            while (frame := await self._take()) is not None:
                await self._socket.send(frame)
        except ConnectionClosed:
            self.close(now=True)
        finally:
            self._grow(-self._size)
            self.sent.set()

    async def _take(self) -> str | None:
        while True:
            await self._socket.drain()
            while not self._items:
                self._filled.clear()
                self._is_idle = True
                await self._filled.wait()
                self._is_idle = False
            item = self._items.popleft()
            if item is None:
                return None
            if (frame := self._frame(item)) is not None:
                return frame

    def _frame(self, item: str | Merged) -> str | None:
        """The message of an item that leaves the queue; None for a delta that was resumed elsewhere."""
        self._grow(-(len(item) if isinstance(item, str) else item.size))
        return item if isinstance(item, str) else item.frame()

    def _flush(self) -> None:
        """Write the queue to a client that reads; leave the rest, and the end, to :meth:`run`."""
        while self._items and self._items[0] is not None and self._socket.is_ready:
            item = self._items.popleft()
            assert item is not None
            if (frame := self._frame(item)) is not None:
                self._socket.write(frame)
        self._is_idle = not self._items
        if self._items:
            self._filled.set()

    def _append(self, item: str | Merged, size: int) -> None:
        if not self._closed:
            self._items.append(item)
            self._wake()
            self._grow(size)

    def _wake(self) -> None:
        """Send the queue in the next turn of the event loop, with all that is added until then."""
        if self._is_idle:
            self._is_idle = False
            asyncio.get_running_loop().call_soon(self._flush)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size < self._limit:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
        elif self._size - size >= OVERFLOW * self._limit:
            # More is added to a far too long queue; one large answer alone does not count.
            self._on_slow()
        elif self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._on_slow)
