"""The receiver of a generation's events, which can end it early."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from localspec.protocol.events import StreamEvent
from localspec.protocol.frames import Loading


class Receiver(ABC):
    """A request, or a stream that goes on without one."""

    def __init__(self) -> None:
        self.cancelled = False
        self._on_cancel: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Request the end: the response still comes, with the text so far."""
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
        """A context for a wait, which ``deadline`` (loop time) or a cancel ends with TimeoutError."""
        now = asyncio.get_running_loop().time
        async with asyncio.timeout_at(deadline) as scope:
            with self.cancelled_by(lambda: None if scope.expired() else scope.reschedule(now())):
                yield

    @property
    @abstractmethod
    def watched(self) -> bool:
        """True if a record of each round is requested."""

    @abstractmethod
    def progress(self, stage: str, fraction: float) -> None:
        """Report progress: ``fraction`` of ``stage``, 0 to 1."""

    @abstractmethod
    def stream(self, event: StreamEvent) -> None:
        """Forward a worker's event."""

    @abstractmethod
    def model_progress(self, model: str, frame: Loading) -> None:
        """Report the progress of a model's load."""


class Silent(Receiver):
    """The receiver of work without a request: it can be cancelled, and sends nothing."""

    @property
    def watched(self) -> bool:
        return False

    def progress(self, stage: str, fraction: float) -> None:
        pass

    def stream(self, event: StreamEvent) -> None:
        pass

    def model_progress(self, model: str, frame: Loading) -> None:
        pass
