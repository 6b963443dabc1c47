"""The worker's end of the socket pair: one thread reads frames, another sends those that can wait."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections import deque
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
        self._outbox: deque[FromWorker] = deque()
        self._posted = threading.Event()
        self._inbox: queue.SimpleQueue[ToWorker | Call] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="frames", daemon=True).start()
        threading.Thread(target=self._send_posted, name="posted", daemon=True).start()

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
        """Send a frame, after all that were posted; a daemon that is gone is noticed by the reading side."""
        self._outbox.append(message)
        self._flush()

    def post(self, message: FromWorker) -> None:
        """Have a thread send a frame while the caller goes on; frames keep their order.

        That thread runs as soon as the caller releases the interpreter, as a forward does: the frames of a
        round are encoded and sent while the next one is computed. Where other programs keep the processors
        busy it may not have run until the next frame is posted: then the caller sends both at once.
        """
        is_late = bool(self._outbox)
        self._outbox.append(message)
        if is_late:
            self._flush()
        else:
            self._posted.set()

    def _send_posted(self) -> None:
        while True:
            self._posted.wait()
            self._posted.clear()
            self._flush()

    def _flush(self) -> None:
        try:
            with self._sending:
                # Taken under the lock, so that the frames of two threads keep their order.
                waiting = [encode_frame(self._outbox.popleft()) for _ in range(len(self._outbox))]
                if waiting:
                    self._socket.sendall(b"".join(waiting))
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
