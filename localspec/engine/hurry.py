"""Giving up a long forward for the sake of somebody who is not to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.backends.base import Backend, Interrupted


class Hurry:
    """Tells the backend to give up, but only in forwards whose caller heeds it: any other would leave a
    round half done."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._heeding = self._wanted = False

    def now(self) -> None:
        """From any thread: give up the forward under way, or the next one that heeds it."""
        with self._lock:
            self._wanted = True
            if self._heeding:
                self._backend.hurry(True)

    @contextmanager
    def heeded(self, deadline: float | None) -> Iterator[None]:
        """Inside, a forward may raise :class:`Interrupted`; so does this if somebody has come since the last
        time. It does in any case at ``deadline``, a time of :func:`time.monotonic`."""
        with self._lock:
            wanted, self._wanted = self._wanted, False
            self._heeding = not wanted
        if wanted:
            raise Interrupted
        alarm = None if deadline is None else self._alarm(deadline)
        try:
            yield
        finally:
            if alarm is not None:
                alarm.cancel()
            self.reset()

    def reset(self) -> None:
        """Nobody hurries any more, and no forward heeds it."""
        with self._lock:
            self._heeding = self._wanted = False
            self._backend.hurry(False)

    def _alarm(self, deadline: float) -> threading.Timer:
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), self.now)
        timer.daemon = True
        timer.start()
        return timer
