"""The pool of workers, lent to requests: one per target and draft model.

Requests without a draft model go to any worker of their target.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from msgspec.structs import replace

from localspec import process
from localspec.config import Config
from localspec.daemon.metrics import Metrics
from localspec.daemon.relay.subscription import Events
from localspec.daemon.workers.identity import identify, key_of_pair, places_among, room_within
from localspec.daemon.workers.turns import Turns
from localspec.daemon.workers.worker import Key, Terms, WorkerProcess
from localspec.errors import EngineBusy, ShuttingDown
from localspec.models.bundled import BUNDLED, BUNDLED_TARGET
from localspec.models.candidates import Room
from localspec.models.fit import Needs, free_memory
from localspec.models.pair import Pair, choose
from localspec.models.sections import Sections
from localspec.protocol.events import ModelEvent
from localspec.protocol.frames import Forget, Load, Loading, Ready
from localspec.protocol.options import Options
from localspec.units import MB

log = logging.getLogger(__name__)

Choose = Callable[[Key, tuple[str, ...], Room], Pair]
"""the pair that a key means, with the models of these directories, within this room"""

MAX_WORKERS = 4
MAX_NAMES = 64
"""keys kept of one worker, found without reading the disk; paths can be spelt in any number of ways"""
QUIET_S = 2.0
"""seconds without requests after which the other models may measure themselves, and learn"""
CHANGED, REPLACED = "a file of it has changed", "another one has its model, with a draft model"
"""reasons why a worker takes no more requests"""
TICK_S = 1.0
"""longest interval between two checks of the workers, in seconds"""


def chosen(key: Key, model_dirs: tuple[str, ...], room: Room) -> Pair:
    """Choose the pair that a key means; reads every model on this disk if the draft is ``auto``.

    Raises as :func:`localspec.models.pair.choose`.
    """
    return choose(key.model, key.draft, model_dirs, backend=key.backend, room=room)


class Program(NamedTuple):
    """The command that starts a worker, and the function that chooses the pair it opens."""

    command: tuple[str, ...]
    choose: Choose = chosen


class _Choice(NamedTuple):
    """A pair, the key with its paths for names, and the first frame to a worker."""

    pair: Pair
    key: Key
    load: Load


COMMAND = Program(process.python("localspec.worker"))


def key_of(options: Options) -> Key:
    """The key of the worker for these (merged) options; the bundled model has two names."""
    model = options.model or BUNDLED
    if model == BUNDLED_TARGET:
        model = BUNDLED
    return Key(model, options.draft or "auto", options.backend or "auto")


class Pool:
    """Starts workers on demand, makes room for new ones, and watches the running ones."""

    def __init__(self, config: Config, metrics: Metrics, events: Events, program: Program = COMMAND) -> None:
        self._config = config
        self.sections = Sections(config)
        self._metrics = metrics
        self._events = events
        self._program = program
        self._terms = Terms(program.command, config.daemon.hang_s, Turns())
        self._workers: list[WorkerProcess] = []
        self._leaving: list[WorkerProcess] = []
        """removed from the list, but not ended yet"""
        self._tasks: set[asyncio.Task[None]] = set()
        """loads and ends of workers that go on if the request that began them is cancelled"""
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def lease(
        self, key: Key, on_loading: Callable[[Loading], None], *, keep_alive_s: float | None = None
    ) -> AsyncIterator[WorkerProcess]:
        """A loaded worker that stays while the lease is held, and ``keep_alive_s`` longer if that is given.

        A request that comes during a load waits for it, and gets its progress. A model whose file has
        changed since it was chosen is loaded anew. Raises the load's error, the lookup's,
        :class:`EngineBusy` if there is no room, :class:`ShuttingDown` after :meth:`close`.
        """
        worker = await self._taken(key, on_loading, keep_alive_s)
        try:
            yield worker
        finally:
            self._give_back(worker)

    async def _taken(
        self, key: Key, on_loading: Callable[[Loading], None], keep_alive_s: float | None
    ) -> WorkerProcess:
        """A loaded worker, with one user more."""
        worker = await self._current(self._known(key)) or await self._identified(key)
        worker.users += 1
        self._hush()
        if keep_alive_s is not None:
            worker.keep_alive_s = keep_alive_s
        worker.listeners.append(on_loading)
        try:
            await asyncio.shield(worker.ready)
        except BaseException:
            self._give_back(worker)
            raise
        finally:
            worker.listeners.remove(on_loading)
        return worker

    def _give_back(self, worker: WorkerProcess) -> None:
        worker.users -= 1
        worker.last_used = time.monotonic()

    def _hush(self) -> None:
        """Keep workers from chores while others are at work, or were within :data:`QUIET_S`."""
        since = time.monotonic() - QUIET_S
        for worker, _ in self.loaded():
            others = (each for each in self._workers if each is not worker)
            worker.rest(allowed=not any(each.users or each.last_used > since for each in others))

    def loaded(self) -> list[tuple[WorkerProcess, Ready]]:
        """The workers whose model is loaded."""
        return [(each, each.ready.result()) for each in self._workers if each.usable and each.loaded]

    def idle_left_s(self, worker: WorkerProcess) -> float | None:
        """Seconds until it is unloaded if it stays unused; None: it is in use, or is not unloaded."""
        return worker.idle_left_s(self._config.daemon.idle_unload_s, time.monotonic())

    async def unload(self, model: str | None = None) -> list[str]:
        """End the workers of a model, by any of its names, or all; their memory is free on return.

        Returns the names of the unloaded models. Raises :class:`ModelNotFound` for an unknown name, and
        :class:`EngineBusy` for workers in use, after the idle ones have ended.
        """
        usable = [worker for worker in self._workers if worker.usable]
        meant = usable if model is None else await self._meant(model, usable)
        busy = [worker for worker in meant if worker.users]
        idle = [worker for worker in meant if not worker.users and worker in self._workers]
        await self._dismiss(idle)
        if busy:
            in_use = ", ".join(f"{worker.model} ({worker.users})" for worker in busy)
            gone = ", ".join(worker.model for worker in idle)
            also = f"; {gone} {'is' if len(idle) == 1 else 'are'} unloaded" if idle else ""
            raise EngineBusy(
                f"these models were not unloaded, because they have running requests: {in_use}{also}"
            )
        return [worker.model for worker in idle]

    async def forget(self, source: str) -> None:
        """Have every worker drop its caches of a source, and the texts it was to learn from it; workers that
        are ending store both, and have ended on return."""
        for worker, _ in self.loaded():
            worker.send(Forget(source))
        await self._dismiss(())

    async def close(self) -> None:
        """End every worker; their requests get :class:`ShuttingDown`."""
        self._closed = True
        await asyncio.gather(*(worker.stop() for worker in (*self._workers, *self._leaving)))
        await asyncio.gather(*self._tasks)
        if self._looking is not None:
            self._looking.cancel()

    # Finding.

    def _known(self, key: Key) -> WorkerProcess | None:
        return next((each for each in self._open() if key in each.names), None)

    def _open(self) -> list[WorkerProcess]:
        """The workers that take requests."""
        return [each for each in self._workers if each.usable and not each.outdated]

    async def _current(self, worker: WorkerProcess | None) -> WorkerProcess | None:
        """The worker, or None if a file of its models has changed: then it ends after its requests."""
        if worker is None or not worker.loaded:
            return worker
        if await asyncio.to_thread(lambda: worker.pair.is_current):
            return worker if worker in self._open() else None
        worker.outdated = CHANGED
        if not worker.users:
            log.info("%s is unloaded: %s", worker.model, CHANGED)
            await asyncio.shield(self._begin(self._dismiss([worker])))
        return None

    async def _identified(self, key: Key) -> WorkerProcess:
        """The worker of the models that ``key`` means, perhaps loaded by another name; or a new one."""
        identity = await asyncio.to_thread(identify, key, self.sections)
        worker = await self._current(self._holding(identity))
        if worker is None:
            free = self._free([each for each in self._workers if not each.users])
            choice = await asyncio.to_thread(self._choose, key, free)
            # Another request may have started it meanwhile, or have named the draft that is chosen now.
            worker = self._holding(identity) or self._holding(choice.key)
            worker = worker or self._start(key, identity, choice)
        if len(worker.names) < MAX_NAMES:
            worker.names.add(key)
        return worker

    def _choose(self, key: Key, free: int) -> _Choice:
        """Choose a pair that fits in ``free`` bytes; for a thread, as it reads the disk."""
        engine = self.sections.engine(key.model)
        pair = self._program.choose(key, self._config.model_dirs, room_within(engine, free))
        return _Choice(pair, key_of_pair(pair), Load(pair.as_frame(), engine))

    def _holding(self, identity: Key) -> WorkerProcess | None:
        return next((each for each in self._open() if each.answers(identity)), None)

    async def _meant(self, model: str, workers: list[WorkerProcess]) -> list[WorkerProcess]:
        named = [each for each in workers if model in (each.model, *(key.model for key in each.names))]
        if named:
            return named
        places = {each: each.ready.result().path if each.loaded else each.identity.model for each in workers}
        meant = await asyncio.to_thread(places_among, model, self._config.model_dirs, set(places.values()))
        return [each for each in workers if places[each] in meant]

    # Starting.

    def _start(self, key: Key, identity: Key, choice: _Choice) -> WorkerProcess:
        if self._closed:
            raise ShuttingDown("the daemon is stopping")
        evicted = self._make_room(choice.pair)
        worker = WorkerProcess(
            key,
            self._terms,
            self._on_end,
            identity=identity,
            pair=choice.pair,
        )
        self._workers.append(worker)
        worker.ready.add_done_callback(lambda _: self._on_ready(worker))
        self._begin(self._load(worker, choice.load, evicted))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_after())
        return worker

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, worker: WorkerProcess, load: Load, evicted: Collection[WorkerProcess]) -> None:
        # Their memory is needed: they end before the load begins.
        await self._dismiss(evicted)
        free = max(0, self._free(without=(worker,)))
        await worker.start(replace(load, free=free))

    async def _dismiss(self, workers: Collection[WorkerProcess]) -> None:
        """End these, and wait for those that are ending already."""
        for worker in workers:
            if worker in self._workers:
                self._workers.remove(worker)
                self._leaving.append(worker)
        await asyncio.gather(*(worker.stop() for worker in tuple(self._leaving)))

    def _make_room(self, pair: Pair) -> list[WorkerProcess]:
        """Remove the idle workers that a pair replaces, and the least recently used ones, as many as a model
        needs with its draft, or else without; returns them.

        For a model that does not fit in any case none is removed for memory: it may fit on a device, which
        the load finds out.
        """
        idle = sorted((w for w in self._workers if not w.users), key=lambda worker: worker.last_used)
        evicted = [worker for worker in idle if worker.outdated or worker.lacks_draft_of(pair)]
        idle = [worker for worker in idle if worker not in evicted]
        while len(self._workers) - len(evicted) >= MAX_WORKERS:
            if not idle:
                raise EngineBusy(f"{len(self._workers)} models are loaded, and all of them are in use")
            evicted.append(idle.pop(0))
        free = [self._free([*evicted, *idle[:n]]) for n in range(len(idle) + 1)]
        wanted = (needs.total for needs in (pair.needs, pair.least))
        enough = (n for total in wanted for n, left in enumerate(free) if total <= left)
        evicted += idle[: next(enough, 0)]
        for worker in evicted:
            self._workers.remove(worker)
            self._leaving.append(worker)
        return evicted

    def _free(self, without: Collection[WorkerProcess]) -> int:
        """Bytes for a new model once the workers ``without`` have ended."""
        others = [worker for worker in self._workers if worker not in without]
        # Loaded models are missing from the free memory already, except for mapped pages of their files.
        taken = sum(each.needs.mapped if each.loaded else each.needs.total for each in others)
        back = sum(each.needs.total - each.needs.mapped for each in without if each.loaded)
        free = free_memory() + back - taken
        limit = self._config.daemon.memory_mb * MB
        return min(free, limit - sum(each.needs.total for each in others)) if limit else free

    # Looking after.

    async def _look_after(self) -> None:
        """Until no worker is left: kill workers that hang, unload those that were idle for too long or are
        outdated."""
        limits = self._config.daemon
        tick_s = min(TICK_S, limits.hang_s / 4, (limits.idle_unload_s or TICK_S) / 4)
        last = time.monotonic()
        while self._workers:
            await asyncio.sleep(tick_s)
            now = time.monotonic()
            away_s, last = max(0.0, now - last - tick_s), now
            self._hush()
            for worker in tuple(self._workers):
                worker.give_up_if_hung(now, away_s)
                if self.idle_left_s(worker) == 0.0:
                    why = worker.outdated or "it was idle for too long"
                    log.info("%s is unloaded: %s", worker.model, why)
                    await self._dismiss([worker])

    def _on_ready(self, worker: WorkerProcess) -> None:
        if worker.loaded:
            ready = worker.ready.result()
            worker.needs = Needs(weights=ready.planned_bytes, mapped=ready.mapped_bytes)
            # It serves requests without a draft model too. Not earlier: its load may fail.
            for plain in (each for each in self._open() if each.lacks_draft_of(worker.pair)):
                plain.outdated = REPLACED
            self._events.publish(ModelEvent(worker.model, "loaded"))
            self._hush()

    def _on_end(self, worker: WorkerProcess) -> None:
        if worker.crashed:
            self._metrics.crashes.inc()
            self._events.publish(ModelEvent(worker.model, "crashed"))
        elif worker.loaded:
            self._events.publish(ModelEvent(worker.model, "unloaded"))
        for workers in (self._workers, self._leaving):
            if worker in workers:
                workers.remove(worker)
