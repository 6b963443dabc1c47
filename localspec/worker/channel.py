"""The worker's end of the socket to the daemon, and its heartbeat.

One thread reads frames, another sends those that can wait, while the engine computes.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from localspec.protocol import frames
from localspec.protocol.frames import FromWorker, Stop, ToWorker
from localspec.protocol.requests import Delta, StreamEvent

T = TypeVar("T")
Call = Callable[[], None]
EXIT_S = 5.0
"""seconds that a worker may go on after its daemon has gone"""
PACE_S = 0.05
"""least seconds between two sendings of posted frames: each wakes the daemon and its clients, which takes CPU
time from the forward that runs meanwhile; a screen shows no more than this"""
LATE = 2
"""multiple of :data:`PACE_S` after which the posting thread counts as kept from running"""
MERGED = 256
"""tokens from which a delta is merged with no later one; in :data:`PACE_S` there are fewer"""
PERIOD_S = 1.0
FORGET = 0.9
"""share of the longest step's time that is kept after each later step"""


class Posted(NamedTuple):
    """An event of the request with this ``id``, which is encoded when it is sent."""

    id: int
    event: StreamEvent


Message = FromWorker | Posted


class Channel:
    """Frames from and to the daemon. When the daemon is gone the next frame is a :class:`Stop`, and the
    process ends ``exit_s`` later."""

    def __init__(self, sock: socket.socket, *, exit_s: float = EXIT_S) -> None:
        self._socket = sock
        self._exit_s = exit_s
        self.on_preempt: Callable[[], None] = lambda: None
        """called by the reading thread for a frame that preempts the reading of a prompt"""
        self._sending = threading.Lock()
        self._outbox: deque[Message] = deque()
        self._posted = threading.Event()
        self._sent_at = 0.0
        """when frames were sent last, as a time of :func:`time.monotonic`"""
        self._inbox: queue.SimpleQueue[ToWorker | Call] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="frames", daemon=True).start()
        threading.Thread(target=self._send_posted, name="posted", daemon=True).start()

    def receive(self) -> ToWorker | Call:
        return self._inbox.get()

    def poll(self, wait_s: float = 0.0) -> ToWorker | Call | None:
        """Return the next frame or call if one arrives within ``wait_s``; else None."""
        if not wait_s and self._inbox.empty():
            return None  # after most rounds: an exception would take longer
        try:
            return self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def call(self, function: Call) -> None:
        """Queue ``function`` among the frames, for the thread that takes them to call; from any thread."""
        self._inbox.put(function)

    def send(self, message: Message) -> None:
        """Send a message, after all that were posted. If the daemon has gone, a :class:`Stop` is queued."""
        self._outbox.append(message)
        self._flush()

    def post(self, message: Message) -> None:
        """Have a thread send a message within :data:`PACE_S`, with all that are posted until then, in order.
        That thread runs while the caller has released the interpreter, as in a forward: messages are encoded
        and sent while the next round is computed. If others keep it from running, the caller sends."""
        self._outbox.append(message)
        if not self._posted.is_set():
            self._posted.set()
        elif time.monotonic() - self._sent_at > LATE * PACE_S:
            self._flush()

    def _send_posted(self) -> None:
        while True:
            self._posted.wait()
            time.sleep(max(0.0, self._sent_at + PACE_S - time.monotonic()))
            self._posted.clear()
            self._flush()

    def _flush(self) -> None:
        try:
            with self._sending:
                # Taken under the lock, so that the messages of two threads keep their order.
                waiting = [self._outbox.popleft() for _ in range(len(self._outbox))]
                if waiting:
                    self._sent_at = time.monotonic()
                    self._socket.sendall(b"".join(map(frames.encode_frame, frames_of(waiting))))
        except OSError:
            self._inbox.put(Stop())

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while (body := frames.read_frame(stream, frames.MAX_FRAME)) is not None:
                    frame = frames.to_worker_decoder.decode(body)
                    self._inbox.put(frame)
                    is_urgent = isinstance(frame, frames.Submit) and frame.request.goes_as == "completion"
                    if is_urgent or isinstance(frame, frames.Cancel | Stop):
                        self.on_preempt()
        except (OSError, ValueError, msgspec.DecodeError):
            # A torn frame means the daemon died while writing: the same as the end of the stream.
            pass
        self._inbox.put(Stop())
        self.on_preempt()
        # A model stuck in native code must not outlive its daemon.
        timer = threading.Timer(self._exit_s, os._exit, (1,))
        timer.daemon = True
        timer.start()


def frames_of(messages: Iterable[Message]) -> list[FromWorker]:
    """The frames of ``messages``, in order; consecutive deltas of a request and a channel are one."""
    merged: list[Message] = []
    last: dict[int, int] = {}
    for message in messages:
        if isinstance(message, Posted):
            id, event = message
            before = merged[last[id]] if id in last else None
            if isinstance(event, Delta) and isinstance(before, Posted) and isinstance(before.event, Delta):
                delta = before.event
                same = (delta.channel, delta.call) == (event.channel, event.call)
                if same and len(delta.tokens) < MERGED:
                    delta = replace(delta, text=delta.text + event.text, tokens=delta.tokens + event.tokens)
                    merged[last[id]] = Posted(id, delta)
                    continue
            last[id] = len(merged)
        merged.append(message)
    return [frames.make_streamed(*message) if isinstance(message, Posted) else message for message in merged]


class Pulse:
    """The heartbeat, which reports the engine's progress, also while native code runs: sent each second while
    there is work."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._steps = 0
        self.expected_s = 0.0
        """seconds that a step may take"""
        self._longest_s = 0.0
        self._busy = threading.Event()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Send heartbeats inside."""
        self._busy.set()
        try:
            yield
        finally:
            self._busy.clear()

    def step(self, work: Callable[[], T]) -> T:
        """Do a step of the work, count it, and return its result."""
        started = time.monotonic()
        done = work()
        self._longest_s = max(time.monotonic() - started, FORGET * self._longest_s)
        self._steps += 1
        return done

    def _beat(self) -> None:
        while True:
            self._busy.wait()
            self._channel.send(frames.Heartbeat(self._steps, max(self.expected_s, self._longest_s)))
            time.sleep(PERIOD_S)
