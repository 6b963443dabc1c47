"""The worker's heartbeat, which reports the engine's progress, also while native code runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from localspec.protocol.frames import Heartbeat
from localspec.worker.channel import Channel

T = TypeVar("T")
PERIOD_S = 1.0
FORGET = 0.9
"""share of the longest step's time that is kept after each later step"""


class Pulse:
    """Sends a heartbeat each second while there is work; an idle worker sends none."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._steps = 0
        self._expected_s = 0.0
        self._longest_s = 0.0
        self._busy = threading.Event()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def expect(self, seconds: float) -> None:
        """Set the seconds that a step may take."""
        self._expected_s = seconds

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
            self._channel.send(Heartbeat(self._steps, max(self._expected_s, self._longest_s)))
            time.sleep(PERIOD_S)
