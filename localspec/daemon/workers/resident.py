"""A model in memory: that of a worker, and the draft models beside it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from localspec.daemon.workers.job import WorkerJob, new_future
from localspec.errors import LocalspecError
from localspec.models.model import Model
from localspec.models.needs import Needs
from localspec.models.pair import Pair
from localspec.protocol.frames import Drafted, DropDraft, LoadDraft, Loading, ToWorker

Begin = Callable[[Callable[[int], ToWorker], Callable[[Any], None]], WorkerJob]
"""sends a worker the frame of a new id; returns its job"""


class Resident(ABC):
    """A model in memory, or on its way there: of ``needs``, for some ``users``. ``ready`` gets the result of
    its load, or the error; ``listeners`` get its progress."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.ready: asyncio.Future[Any] = new_future()
        self.listeners: list[Callable[[Loading], None]] = []
        self.users = 0
        self.last_used = time.monotonic()
        self.drafts: list[HeldDraft] = []
        """the draft models beside it"""
        self.keep_alive_s: float | None = None
        """longest idle time in seconds, if a client has set one; 0: for ever"""

    @property
    def loaded(self) -> bool:
        return self.ready.done() and not self.ready.cancelled() and self.ready.exception() is None

    def idle_left_s(self, limit_s: float, now: float) -> float | None:
        """Seconds until it has idled for too long; None: it is in use, or may idle for ever."""
        limit_s = limit_s if self.keep_alive_s is None else self.keep_alive_s
        if self.users or not limit_s or not self.loaded:
            return None
        return max(0.0, self.last_used + limit_s - now)

    def progress(self, frame: Loading) -> None:
        for listener in tuple(self.listeners):
            listener(frame)

    @property
    @abstractmethod
    def model(self) -> str: ...

    @abstractmethod
    async def stop(self) -> None: ...


class HeldDraft(Resident):
    """A draft model, as it is paired in ``pair``, in the worker of its target, in which ``begin`` begins a
    job; ``ready`` gets Drafted."""

    def __init__(self, pair: Pair, draft: Model, needs: Needs, begin: Begin) -> None:
        super().__init__(needs)
        self.pair, self.draft = pair, draft
        self.number = 0
        self._begin = begin

    @property
    def model(self) -> str:
        return self.draft.name

    async def open(self, free: int) -> bool:
        """Load it within ``free`` bytes; returns False if that fails, or if it is left out."""
        try:
            job = self._begin(lambda id: LoadDraft(id, self.pair.as_frame(), free), self.progress)
            self.number = job.id
            drafted: Drafted = await job.end
        except LocalspecError as error:
            self.ready.set_exception(error)
            return False
        if drafted.loaded:
            self.needs = Needs(draft=drafted.planned_bytes, mapped=drafted.mapped_bytes)
        self.ready.set_result(drafted)
        return drafted.loaded

    async def stop(self) -> None:
        with contextlib.suppress(LocalspecError):  # its worker has ended
            await self._begin(lambda id: DropDraft(id, self.number), self.progress).end
