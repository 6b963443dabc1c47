"""What waits to be sent to one client.

Putting something in never waits, so a client that reads slowly holds nobody up: adjacent deltas of
a request are merged, and a client that leaves the buffer full for too long is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import Id
from localspec.protocol.messages import StreamDelta
from localspec.protocol.results import Token

TOKEN_BYTES = 48
"""about what a token takes on the wire"""
MERGED_BYTES = 64 * 1024
"""a delta this large takes no more"""
LIVE_SHARE = 8
"""the part of the buffer, one in so many, beyond which nothing is added that may be lost"""
OVERFLOW = 16
"""times the buffer's size at which a client is given up without delay"""


class Deltas:
    """The stream of one request: how many deltas went out, and the one that still waits."""

    __slots__ = ("request", "seq", "waiting")

    def __init__(self, request: Id) -> None:
        self.request = request
        self.seq = 0
        self.waiting: Merged | None = None


class Merged:
    """One delta to be: what came in since the last one went out."""

    __slots__ = ("of", "size", "texts", "tokens")

    def __init__(self, of: Deltas) -> None:
        self.of = of
        self.texts: list[str] = []
        self.tokens: list[Token] = []
        self.size = 0

    def add(self, text: str, tokens: tuple[Token, ...]) -> int:
        """Take more in; returns by how much it grew."""
        self.texts.append(text)
        self.tokens.extend(tokens)
        grown = len(text) + TOKEN_BYTES * len(tokens)
        self.size += grown
        return grown

    def frame(self) -> str:
        """The delta, numbered as it goes out."""
        delta = StreamDelta(self.of.request, self.of.seq, "".join(self.texts), tuple(self.tokens))
        self.of.seq += 1
        if self.of.waiting is self:
            self.of.waiting = None
        return jsonrpc.notification("stream/delta", delta)


class Outbox:
    """A queue of ``limit`` bytes; ``on_slow`` is called once it has been full for ``patience`` seconds."""

    def __init__(
        self, socket: ServerConnection, limit: int, patience: float, on_slow: Callable[[], None]
    ) -> None:
        self._socket = socket
        self._limit = limit
        self._patience = patience
        self._on_slow = on_slow
        self._items: deque[str | Merged | None] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self.sent = asyncio.Event()
        """set once :meth:`run` has ended"""

    def put(self, frame: str, after: Deltas | None = None) -> None:
        """Queue a frame; later deltas of ``after`` come after it."""
        if after is not None:
            after.waiting = None
        self._append(frame, len(frame))

    def live(self, frame: str) -> None:
        """Queue a frame that is of use at once or never: for a client that is behind it is dropped."""
        if self._size < self._limit // LIVE_SHARE:
            self._append(frame, len(frame))

    def delta(self, stream: Deltas, text: str, tokens: tuple[Token, ...]) -> None:
        """Queue new text of a request, in the delta that still waits if there is one."""
        if self._closed:
            return
        if stream.waiting is None or stream.waiting.size >= MERGED_BYTES:
            stream.waiting = Merged(stream)
            self._append(stream.waiting, 0)
        self._grow(stream.waiting.add(text, tokens))

    def close(self, *, now: bool = False) -> None:
        """Take no more, and let :meth:`run` end once all is sent; or, ``now``, drop what waits."""
        if now:
            self._items.clear()
            self._grow(-self._size)
        if now or not self._closed:
            # Dropping what waits drops an earlier mark of the end as well: it is set again.
            self._closed = True
            self._items.append(None)
            self._filled.set()

    async def run(self) -> None:
        """Send what is queued, until closed or until the client is gone."""
        try:
            while (frame := await self._take()) is not None:
                await self._socket.send(frame)
        except ConnectionClosed:
            self.close(now=True)
        finally:
            self._grow(-self._size)
            self.sent.set()

    async def _take(self) -> str | None:
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        item = self._items.popleft()
        if item is None:
            return None
        self._grow(-(len(item) if isinstance(item, str) else item.size))
        return item if isinstance(item, str) else item.frame()

    def _append(self, item: str | Merged, size: int) -> None:
        if not self._closed:
            self._items.append(item)
            self._filled.set()
            self._grow(size)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size < self._limit:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
        elif self._size - size >= OVERFLOW * self._limit:
            # More comes in on top of far too much; one large answer alone is no fault of the client's.
            self._on_slow()
        elif self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._on_slow)
