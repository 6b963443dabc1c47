"""The parent's side of :mod:`.rendering`: a process that renders one chat template, and its messages."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
import weakref
from queue import Empty, SimpleQueue
from typing import BinaryIO, cast

import msgspec
import psutil

from localspec import process
from localspec.errors import EngineError, of_system
from localspec.models.rendering import Begin, Rendered, framed, memory_exceeded, receive, time_exceeded

WHAT = "the process that renders the chat template"
REMEDY = "Close other programs or raise the limit of processes (`ulimit -u`), then try again."
WAIT_S = 20.0
"""longest wait for an answer in seconds, as the process may get little of a busy machine's time"""
LOOK_S = 0.02
"""interval in seconds at which its memory is checked: not every system limits that by itself"""


class RenderingProcess:
    """A process of :mod:`.rendering`; it ends with this object, and where it exceeds its limits.

    Start it early: importing Python's and Jinja's modules takes it some 0.2 s.
    Raises :class:`EngineError` where it cannot be started.
    """

    def __init__(self) -> None:
        self._answer: SimpleQueue[bytes | None] = SimpleQueue()
        try:
            self._process = subprocess.Popen(
                process.python("localspec.models.rendering"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is for us
                **process.surroundings(),
            )
        except OSError as error:
            failure = f"{WHAT} cannot be started"
            raise of_system(error, failure) or EngineError(f"{failure}: {error.strerror}", REMEDY) from None
        self.end = weakref.finalize(self, _end, self._process)
        """ends the process; no effect after the first call"""

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: object) -> None:
        """Send a message without waiting for anything; :meth:`answer` returns the answer to the last one.

        Raises :class:`ValueError` where no frame can hold it, :class:`EngineError` without a thread.
        """
        # A thread for each exchange writes and reads, as pipes have no time limit on every system. It ends
        # with the process.
        frame, self._answer = framed(message), SimpleQueue()
        exchange = threading.Thread(target=_exchange, args=(self._process, frame, self._answer), daemon=True)
        try:
            exchange.start()
        except RuntimeError as error:
            raise EngineError(f"no thread can be started to write to {WHAT}: {error}", REMEDY) from None

    def answer(self, limits: Begin) -> Rendered:
        """The answer to the message sent last, or the limit that ended the process.

        After an interrupt end the process: its answer must not be read as the one to another message.
        """
        begun = time.monotonic()
        while True:
            with contextlib.suppress(Empty):
                content = self._answer.get(timeout=LOOK_S)
                return msgspec.msgpack.decode(content, type=Rendered) if content else self._ended(limits)
            if time.monotonic() - begun > WAIT_S:
                self.end()
                return Rendered(error=f"its process did not answer within {WAIT_S:g} s", is_final=False)
            if self._memory() > limits.memory:
                self.end()
                return Rendered(error=memory_exceeded(limits.memory))

    def _memory(self) -> int:
        """Bytes of memory that the process takes; 0 where it has ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _ended(self, limits: Begin) -> Rendered:
        """The reason why the process ended by itself, as far as it is known."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # of one that only closed its pipe
            self._process.wait(LOOK_S)
        code = self._process.poll()
        self.end()
        if code is not None and code == -getattr(signal, "SIGXCPU", 0):
            return Rendered(error=time_exceeded(limits.seconds))
        return Rendered(error=f"its process ended with exit code {code}", is_final=False)


def _exchange(process: subprocess.Popen[bytes], frame: bytes, answer: SimpleQueue[bytes | None]) -> None:
    """Write a frame, and put the content of the next one into ``answer``; None where the process ends."""
    stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    content = None
    with contextlib.suppress(OSError, ValueError):  # it has ended, and its pipes may be closed
        stdin.write(frame)
        stdin.flush()
        content = receive(stdout)
    answer.put(content)


def _end(process: subprocess.Popen[bytes]) -> None:
    # First the process: a thread that waits at one of its pipes holds that pipe's lock until then.
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # what it did not read any more
                stream.close()
