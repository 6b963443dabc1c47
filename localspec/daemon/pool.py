"""The workers there are: one per (model, draft, backend), lent to requests."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from localspec.config import Config
from localspec.daemon.events import Events
from localspec.daemon.metrics import Metrics
from localspec.daemon.worker import Key, WorkerProcess
from localspec.errors import EngineBusy, ShuttingDown
from localspec.models.catalogue import BUNDLED, BUNDLED_TARGET
from localspec.protocol.events import ModelEvent
from localspec.protocol.frames import Load, Loading, Ready
from localspec.protocol.options import Options

COMMAND = (sys.executable, "-m", "localspec.worker")
MAX_WORKERS = 4


def key_of(options: Options) -> Key:
    """Which worker answers these (merged) options; the bundled model has two names."""
    model = options.model or BUNDLED
    if model == BUNDLED_TARGET:
        model = BUNDLED
    return Key(model, options.draft or "auto", options.backend or "auto")


class Pool:
    """Starts workers when they are asked for, and makes room for new ones."""

    def __init__(
        self, config: Config, metrics: Metrics, events: Events, command: tuple[str, ...] = COMMAND
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._events = events
        self._command = command
        self._workers: dict[Key, WorkerProcess] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def lease(self, key: Key, on_loading: Callable[[Loading], None]) -> AsyncIterator[WorkerProcess]:
        """A loaded worker that stays while the lease is held.

        Whoever comes during a load waits for it, and hears of its progress. Raises the load's
        error, :class:`EngineBusy` if there is no room, :class:`ShuttingDown` after :meth:`close`.
        """
        worker = self._workers.get(key)
        if worker is None or not worker.usable:
            worker = self._start(key)
        worker.users += 1
        try:
            worker.listeners.append(on_loading)
            try:
                await asyncio.shield(worker.ready)
            finally:
                worker.listeners.remove(on_loading)
            yield worker
        finally:
            worker.users -= 1
            worker.last_used = time.monotonic()

    def loaded(self) -> list[tuple[WorkerProcess, Ready]]:
        """The workers whose model is loaded."""
        return [
            (worker, worker.ready.result())
            for worker in self._workers.values()
            if worker.usable and worker.loaded
        ]

    async def close(self) -> None:
        """End every worker; their requests get :class:`ShuttingDown`."""
        self._closed = True
        await asyncio.gather(*(worker.stop() for worker in tuple(self._workers.values())))
        await asyncio.gather(*self._starting)

    def _start(self, key: Key) -> WorkerProcess:
        if self._closed:
            raise ShuttingDown("the daemon is stopping")
        evicted = self._make_room(key)
        worker = self._workers[key] = WorkerProcess(key, self._command, self._on_end)
        worker.ready.add_done_callback(lambda _: self._on_ready(worker))
        task = asyncio.create_task(self._load(worker, evicted))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return worker

    async def _load(self, worker: WorkerProcess, evicted: WorkerProcess | None) -> None:
        if evicted is not None:
            # Its memory is needed: first out, then in.
            await evicted.stop()
        model, draft, backend = worker.key
        await worker.start(Load(model, draft, backend, self._config.engine, self._config.model_dirs))

    def _make_room(self, key: Key) -> WorkerProcess | None:
        """Take the least recently used idle worker out, if one must go."""
        others = [worker for worker in self._workers.values() if worker.key != key]
        if len(others) < MAX_WORKERS:
            return None
        idle = [worker for worker in others if worker.users == 0]
        if not idle:
            raise EngineBusy(f"{len(others)} models are loaded and all of them are at work")
        evicted = min(idle, key=lambda worker: worker.last_used)
        del self._workers[evicted.key]
        return evicted

    def _on_ready(self, worker: WorkerProcess) -> None:
        if worker.loaded:
            self._events.publish(ModelEvent(worker.model, "loaded"))

    def _on_end(self, worker: WorkerProcess) -> None:
        if worker.crashed:
            self._metrics.crashes.inc()
            self._events.publish(ModelEvent(worker.model, "crashed"))
        elif worker.loaded:
            self._events.publish(ModelEvent(worker.model, "unloaded"))
        if self._workers.get(worker.key) is worker:
            del self._workers[worker.key]
