"""Preemption: a long forward is given up for a request that must not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.backends.base import Backend, Interrupted


class Preemption:
    """Interrupts forwards of the backend, but only inside :meth:`allowed`: elsewhere it would leave a round
    half done."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._allowing = self._wanted = False

    def request(self) -> None:
        """Interrupt the forward under way or, if none may be interrupted, the next one; from any thread."""
        with self._lock:
            self._wanted = True
            if self._allowing:
                self._backend.preempt(True)

    @contextmanager
    def allowed(self, deadline: float | None) -> Iterator[None]:
        """Let a forward inside raise :class:`Interrupted`, at ``deadline`` at the latest, which is a time of
        :func:`time.monotonic`. Raises it at once if there was a :meth:`request` since the last time."""
        with self._lock:
            wanted, self._wanted = self._wanted, False
            self._allowing = not wanted
        if wanted:
            raise Interrupted
        alarm = None
        if deadline is not None:
            alarm = threading.Timer(max(0.0, deadline - time.monotonic()), self.request)
            alarm.daemon = True
            alarm.start()
        try:
            yield
        finally:
            if alarm is not None:
                alarm.cancel()
            with self._lock:
                self._allowing = self._wanted = False
                self._backend.preempt(False)
