"""The worker's end of the socket pair: frames in by a thread, frames out by whoever has some."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable

import msgspec

from localspec.protocol.frames import (
    HEADER,
    MAX_FRAME,
    Cancel,
    FromWorker,
    Stop,
    Submit,
    ToWorker,
    encode_frame,
    to_worker_decoder,
)

Call = Callable[[], None]
LAST_WORDS_S = 5.0
"""how long a worker may go on after its daemon is gone"""


class Channel:
    """Frames from and to the daemon. When the daemon is gone the next frame is a :class:`Stop`, and the
    process ends ``last_words_s`` later."""

    def __init__(self, sock: socket.socket, *, last_words_s: float = LAST_WORDS_S) -> None:
        self._socket = sock
        self._last_words_s = last_words_s
        self.on_urgent: Callable[[], None] = lambda: None
        """called by the reading thread when a frame has come that is not to wait for a piece of a prompt"""
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[ToWorker | Call] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="frames", daemon=True).start()

    def receive(self) -> ToWorker | Call:
        """The next frame or call; waits for it."""
        return self._inbox.get()

    def poll(self, wait_s: float = 0.0) -> ToWorker | Call | None:
        """The next frame or call, if one is there or comes within ``wait_s``."""
        try:
            return self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def call(self, function: Call) -> None:
        """From any thread: have whoever reads the frames call ``function`` in its turn."""
        self._inbox.put(function)

    def send(self, message: FromWorker) -> None:
        """Send a frame; a daemon that is gone is noticed by the reading side."""
        try:
            with self._sending:
                self._socket.sendall(encode_frame(message))
        except OSError:
            self._inbox.put(Stop())

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while header := stream.read(HEADER.size):
                    (length,) = HEADER.unpack(header)
                    if length > MAX_FRAME:
                        break
                    frame = to_worker_decoder.decode(stream.read(length))
                    self._inbox.put(frame)
                    if _is_urgent(frame):
                        self.on_urgent()
        except (OSError, ValueError, msgspec.DecodeError):
            # A torn frame means the daemon died while writing: the same as the end of the stream.
            pass
        self._inbox.put(Stop())
        self.on_urgent()
        # A model stuck in native code must not outlive its daemon.
        timer = threading.Timer(self._last_words_s, os._exit, (1,))
        timer.daemon = True
        timer.start()


def _is_urgent(frame: ToWorker) -> bool:
    match frame:
        case Submit(request=request):
            return request.goes_as == "completion"
        case Cancel() | Stop():
            return True
        case _:
            return False
