"""Who asked for a generation: what is told on the way, and when it is to end early."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from localspec.daemon.daemon import Daemon
from localspec.daemon.worker import StreamEvent
from localspec.protocol.frames import Loading


class Asker(ABC):
    """A request, or a stream that goes on without one."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.cancelled = False
        self._on_cancel: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Ask for the end: the response still comes, with what there is."""
        self.cancelled = True
        for stop in tuple(self._on_cancel):
            stop()

    @contextmanager
    def cancelled_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Inside, a cancel calls ``stop``; one that came earlier calls it at once."""
        self._on_cancel.append(stop)
        try:
            if self.cancelled:
                stop()
            yield
        finally:
            self._on_cancel.remove(stop)

    @asynccontextmanager
    async def waiting(self, deadline: float | None = None) -> AsyncIterator[None]:
        """Inside is a wait that ``deadline`` (loop time) or a cancel ends with TimeoutError."""
        now = asyncio.get_running_loop().time
        async with asyncio.timeout_at(deadline) as scope:
            with self.cancelled_by(lambda: None if scope.expired() else scope.reschedule(now())):
                yield

    @property
    @abstractmethod
    def watched(self) -> bool:
        """Whether the client wants to hear of the rounds."""

    @abstractmethod
    def progress(self, stage: str, fraction: float) -> None:
        """Tell how far it has come."""

    @abstractmethod
    def stream(self, event: StreamEvent) -> None:
        """Pass a worker's event on."""

    @abstractmethod
    def model_progress(self, model: str, frame: Loading) -> None:
        """Tell how far a model is loaded."""
