"""Messages as they come on stdin and go to stdout.

Not by pygls' own loop: that one waits for the editor's next byte before it ends at SIGINT, leaves the
connection to the daemon open at SIGTERM, and knows a header's name in one spelling alone.
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
    """What comes there, read by a thread: it may be a pipe, a file or a terminal, and at the end nobody waits
    for what does not come."""
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
    """The bodies of messages, until there is no more; ends, too, at what is no message."""
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
    """Writes messages, on a thread: an editor that does not read holds up nothing else, not even the end.

    ``lost`` is called when nobody reads them any more.
    """

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._fd = fd
        self._loop, self._lost = asyncio.get_running_loop(), lost
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._pump, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Have all of it written, after what was written before."""
        self._waiting.put(data)

    def close(self) -> None:
        """Nothing comes after this; whoever opened it closes it."""
        self._waiting.put(None)

    def drain(self, seconds: float) -> None:
        """Wait for what is not written yet, but no longer."""
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
