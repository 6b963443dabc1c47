"""Messages read from stdin and written to stdout.

Not by pygls' own loop: that one waits for the editor's next byte before it ends at SIGINT, leaves the
connection to the daemon open at SIGTERM, and accepts a header's name in one spelling only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import threading
from collections.abc import AsyncIterator, Callable

CHUNK = 1 << 16
LENGTH = re.compile(rb"content-length:\s*(\d{1,10})", re.IGNORECASE)


def open_input(fd: int) -> asyncio.StreamReader:
    """Return a reader of ``fd``, which a thread fills: it may be a pipe, a file or a terminal, and the
    server's end does not wait for a blocked read."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()

    def pump() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            with contextlib.suppress(OSError):
                while chunk := os.read(fd, CHUNK):
                    loop.call_soon_threadsafe(reader.feed_data, chunk)
            loop.call_soon_threadsafe(reader.feed_eof)

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    return reader


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The bodies of messages, until the end of the input or the first malformed message."""
    with contextlib.suppress(asyncio.IncompleteReadError, ValueError):
        while True:
            length: int | None = None
            while (line := await reader.readline()).strip():
                if found := LENGTH.fullmatch(line.strip()):
                    length = int(found[1])
            if not line:
                return
            if length is not None:
                yield await reader.readexactly(length)


class Output:
    """Writes messages on a thread: an editor that does not read blocks nothing else, not even the end.

    ``lost`` is called when writing fails because the reader has closed.
    """

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._fd = fd
        self._loop, self._lost = asyncio.get_running_loop(), lost
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._pump, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        self._waiting.put(data)

    def close(self) -> None:
        """End the thread after the queued data; ``fd`` stays open."""
        self._waiting.put(None)

    def drain(self, seconds: float) -> None:
        """Close, and wait at most ``seconds`` until the queue is written."""
        self.close()
        self._thread.join(seconds)

    def _pump(self) -> None:
        try:
            while (data := self._waiting.get()) is not None:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._lost)
