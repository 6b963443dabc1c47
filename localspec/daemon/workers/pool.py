"""The pool of workers, leased to requests: one per target, with the draft models that requests name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from localspec import process
from localspec.child import Child
from localspec.config import Config
from localspec.daemon.metrics import MetricsRegistry
from localspec.daemon.workers.resident import HeldDraft, Resident
from localspec.daemon.workers.turns import Turns
from localspec.daemon.workers.worker import Key, WorkerProcess
from localspec.errors import EngineBusy, ShuttingDown, from_dict
from localspec.models.catalogue import BUNDLED, BUNDLED_TARGET
from localspec.models.fit import needs_beside, servers_of
from localspec.models.library import Sections, places_of
from localspec.models.machine import free_memory, has_device_code
from localspec.models.model import Model
from localspec.models.needs import Needs
from localspec.models.pair import Drafter, Pair, Room, choose, is_apple_silicon
from localspec.protocol.frames import Drafted, Forget, Load, Loading, TargetReady
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB

log = logging.getLogger(__name__)

MAX_WORKERS = 4
MAX_NAMES = 64
"""keys kept of one worker, found without reading the disk; paths can be spelt in any number of ways"""
QUIET_S = 2.0
"""seconds without requests after which the other models may measure themselves, and learn"""
FORMS = Child("localspec.constraints.constraint", once=True)
"""the process that tries the forms of requests whose model is not loaded"""
FORM_S = 0.25
"""processor time that such a form may take"""
TICK_S = 1.0
"""longest interval between two checks of the workers, in seconds"""


def choose_pair(key: Key, model_dirs: tuple[str, ...], room: Room) -> Pair:
    """Choose the pair that a key means, as :func:`choose`; reads all models here if the draft is ``auto``."""
    return choose(key.model, key.draft, model_dirs, backend=key.backend, room=room)


class Program(NamedTuple):
    """The command that starts a worker, and the function that chooses the pair it opens: that of a key, with
    the models of some directories, within some room."""

    command: tuple[str, ...]
    choose: Callable[[Key, tuple[str, ...], Room], Pair] = choose_pair


class Lease(NamedTuple):
    """A loaded worker, the pair that answers, and the number of its draft model in the worker; None: none."""

    worker: WorkerProcess
    pair: Pair
    draft: int | None


COMMAND = Program(process.python("localspec.worker"))


def key_of(options: Options) -> Key:
    """The key of the worker for these (merged) options; the bundled model has two names."""
    model = options.model or BUNDLED
    if model == BUNDLED_TARGET:
        model = BUNDLED
    return Key(model, options.draft or "auto", options.backend or "auto")


class Pool:
    """Starts workers on demand, makes room for new ones, and watches the running ones."""

    def __init__(self, config: Config, metrics: MetricsRegistry, program: Program = COMMAND) -> None:
        self._config = config
        self.sections = Sections(config)
        self._metrics = metrics
        self._program = program
        self._turns = Turns()
        self._workers: list[WorkerProcess] = []
        self._leaving: list[WorkerProcess] = []
        """removed from the list, but not ended yet"""
        self._tasks: set[asyncio.Task[None]] = set()
        """loads and ends of workers that go on if the request that began them is cancelled"""
        self._looking: asyncio.Task[None] | None = None
        self._form_turn = asyncio.Lock()
        self._closed = False

    @asynccontextmanager
    async def lease(
        self, key: Key, on_loading: Callable[[str, Loading], None], *, keep_alive_s: float | None = None
    ) -> AsyncIterator[Lease]:
        """A loaded worker and draft model, which stay while the lease is held, and ``keep_alive_s`` longer if
        that is given. A request that comes during a load waits for it, and gets its progress. A model whose
        file has changed since it was chosen is loaded anew. Raises the load's error, the lookup's,
        :class:`EngineBusy` if there is no room, :class:`ShuttingDown` after :meth:`close`."""
        worker, pair = await self._find_worker(key) or await self._choose_worker(key)
        async with AsyncExitStack() as used:
            progress = partial(on_loading, key.model)
            await used.enter_async_context(self._count_user(worker, progress, keep_alive_s))
            held = await self._draft_of(worker, key, pair)
            if held is not None:
                await used.enter_async_context(self._count_user(held, progress, keep_alive_s))
                drafted: Drafted = held.ready.result()
                if not drafted.loaded:
                    left_out = Drafter(why=drafted.why, asked=False)
                    worker.pairs[key] = pair = Pair(pair.target, left_out, pair.why)
                    held = None
            worker.pair = pair
            yield Lease(worker, pair, None if held is None else held.number)

    async def check_form(self, key: Key, options: Options) -> None:
        """Raise :class:`InvalidOptions` for a form that is not valid, before the model is loaded for it. What
        takes more than :data:`FORM_S` is left to the worker, and all that comes when there is one."""
        if options.has_form and self._worker_of(key) is None:
            work = msgspec.json.encode(options), FORM_S
            async with self._form_turn:
                if self._worker_of(key) is None and (error := await asyncio.to_thread(FORMS.do, work)):
                    raise from_dict(msgspec.json.decode(error))

    @asynccontextmanager
    async def _count_user(
        self, resident: Resident, on_loading: Callable[[Loading], None], keep_alive_s: float | None
    ) -> AsyncIterator[None]:
        resident.users += 1
        self._forbid_chores()
        if keep_alive_s is not None:
            resident.keep_alive_s = keep_alive_s
        try:
            resident.listeners.append(on_loading)
            try:
                await asyncio.shield(resident.ready)
            finally:
                resident.listeners.remove(on_loading)
            yield
        finally:
            resident.users -= 1
            resident.last_used = time.monotonic()

    def _forbid_chores(self) -> None:
        """Keep workers from chores while others are at work, or were within :data:`QUIET_S`."""
        since = time.monotonic() - QUIET_S
        for worker, _ in self.list_loaded():
            others = (each for each in self._workers if each is not worker)
            worker.rest(allowed=not any(each.users or each.last_used > since for each in others))

    def list_loaded(self) -> list[tuple[WorkerProcess, TargetReady]]:
        """The workers whose model is loaded."""
        return [(each, each.ready.result()) for each in self._workers if each.usable and each.loaded]

    def idle_left_s(self, worker: Resident) -> float | None:
        """Seconds until it is unloaded if it stays unused; None: it is in use, or is not unloaded."""
        return worker.idle_left_s(self._config.daemon.idle_unload_s, time.monotonic())

    async def unload(self, model: str | None = None) -> list[str]:
        """End the workers of a model, by any of its names, or all; their memory is free on return. Returns
        the names of the unloaded models. Raises :class:`ModelNotFound` for an unknown name, and
        :class:`EngineBusy` for workers in use, after the idle ones have ended."""
        usable = [worker for worker in self._workers if worker.usable]
        meant = usable if model is None else await self._find_meant(model, usable)
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
        for worker, _ in self.list_loaded():
            worker.send(Forget(source))
        await self._dismiss(())

    async def close(self) -> None:
        """End every worker; their requests get :class:`ShuttingDown`."""
        self._closed = True
        await asyncio.to_thread(FORMS.close)
        await asyncio.gather(*(worker.stop() for worker in (*self._workers, *self._leaving)))
        await asyncio.gather(*self._tasks)
        if self._looking is not None:
            self._looking.cancel()

    def _worker_of(self, key: Key) -> WorkerProcess | None:
        return next((each for each in self._workers if each.usable and key in each.pairs), None)

    async def _find_worker(self, key: Key) -> tuple[WorkerProcess, Pair] | None:
        """The worker and the pair that ``key`` was found to mean; None if the worker is idle, and a file of
        the pair has changed since."""
        worker = self._worker_of(key)
        if worker is None:
            return None
        pair = worker.pairs[key]
        if worker.loaded and not worker.users and not await asyncio.to_thread(lambda: pair.is_current):
            worker.pairs.pop(key, None)
            return None
        return (worker, pair) if worker in self._workers and worker.usable else None

    async def _choose_worker(self, key: Key) -> tuple[WorkerProcess, Pair]:
        """The pair that ``key`` means, and the worker of its target, by any name, or a new one."""
        idle = self._idle()
        beside = {each.pair.target.place: self._free([*idle, each]) for each in self._workers}
        free = self._free(idle)
        pair, engine = await asyncio.to_thread(self._choose, key, lambda place: beside.get(place, free))
        held = (each for each in self._workers if each.usable and each.holds(pair.target))
        worker = next(held, None) or self._start(key, pair, engine)
        if len(worker.pairs) >= MAX_NAMES:
            del worker.pairs[next(iter(worker.pairs))]
        worker.pairs[key] = pair
        return worker, pair

    def _choose(self, key: Key, free: Callable[[str], int]) -> tuple[Pair, EngineConfig]:
        """Choose a pair that fits in the memory that is ``free`` for the target at a place, and the settings
        to load it with; for a thread, as it reads the disk. A model that may go to a device has no limit
        here: the device's driver knows its free memory, and the worker queries it."""
        engine = self.sections.engine(key.model)

        def free_for(target: Model) -> int | None:
            is_asked = target.format == "mlx" or engine.gpu_layers != 0
            on_device = is_asked and not is_apple_silicon() and has_device_code(target.format)
            return None if on_device else free(target.place)

        return self._program.choose(key, self._config.model_dirs, Room(engine, free_for)), engine

    async def _draft_of(self, worker: WorkerProcess, key: Key, pair: Pair) -> HeldDraft | None:
        """The draft model of ``pair`` in its worker, which loads it if need be; None if it has none."""
        if (draft := pair.draft) is None:
            return None
        held = worker.find_draft(draft)
        while held is not None and held.pair.drafter.asked != pair.drafter.asked and not held.loaded:
            # One that was named may fail, and its error is not this request's; or the other way round.
            await asyncio.wait([held.ready])
            held = worker.find_draft(draft)
        if held is not None:
            return held
        ready: TargetReady = worker.ready.result()

        def size_draft() -> Needs:
            engine = self.sections.engine(key.model)
            return needs_beside(pair.target, draft, engine, ready.sequences)

        needs = await asyncio.to_thread(size_draft)
        held = worker.find_draft(draft)  # another request may have begun it meanwhile
        if held is None:
            leaving = self._evict([needs.total], self._idle())
            self._remove(leaving)
            # Now: one that comes later and finds no room must not take this one's.
            free = max(0, self._free(leaving))
            held = HeldDraft(pair, draft, needs, worker.begin)
            worker.drafts.append(held)
            self._begin(self._load_draft(held, leaving, free))
        return held

    async def _find_meant(self, model: str, workers: list[WorkerProcess]) -> list[WorkerProcess]:
        named = [each for each in workers if model in (each.model, *(key.model for key in each.pairs))]
        if named:
            return named
        places = await asyncio.to_thread(places_of, model, self._config.model_dirs)
        return [each for each in workers if each.pair.target.place in places]

    def _start(self, key: Key, pair: Pair, engine: EngineConfig) -> WorkerProcess:
        if self._closed:
            raise ShuttingDown("the daemon is stopping")
        servers = {*servers_of(pair.target, engine)}
        leaving = self._make_room(pair, servers)
        command, hang_s = self._program.command, self._config.daemon.hang_s
        worker = WorkerProcess(key, pair, command, hang_s, self._turns, self._on_end)
        worker.servers = servers
        self._workers.append(worker)
        worker.ready.add_done_callback(lambda _: self._on_ready(worker))
        self._begin(self._load(worker, Load(pair.as_frame(), engine), leaving))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_after())
        return worker

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, worker: WorkerProcess, load: Load, leaving: Collection[Resident]) -> None:
        # Their memory is needed: they end before the load begins.
        await self._dismiss(leaving)
        free = max(0, self._free(without=(worker,)))
        await worker.start(replace(load, free=free))

    async def _load_draft(self, held: HeldDraft, leaving: Collection[Resident], free: int) -> None:
        await self._dismiss(leaving)
        if not await held.open(free):
            self._remove([held])

    async def _dismiss(self, residents: Collection[Resident]) -> None:
        """End these, and wait for those that are ending already."""
        self._remove(residents)
        drafts = (each for each in residents if isinstance(each, HeldDraft))
        await asyncio.gather(*(each.stop() for each in (*self._leaving, *drafts)))

    def _remove(self, residents: Collection[Resident]) -> None:
        """Keep requests from models that are to end."""
        for each in residents:
            if isinstance(each, WorkerProcess) and each in self._workers:
                self._workers.remove(each)
                self._leaving.append(each)
            for worker in self._workers:
                if each in worker.drafts:
                    worker.drafts.remove(each)

    def _make_room(self, pair: Pair, servers: set[str]) -> list[Resident]:
        """Remove the idle workers of an earlier state of the target's file, or on ``servers``, which have one
        client at a time, and those idle models that :meth:`_evict` finds for a pair, or else for its target;
        returns them."""
        idle, place = self._idle(), pair.target.place
        workers = [each for each in idle if isinstance(each, WorkerProcess)]
        leaving: list[Resident] = [w for w in workers if w.pair.target.place == place or w.servers & servers]
        more = len(self._workers) - len(leaving) - MAX_WORKERS + 1
        left = [worker for worker in workers if worker not in leaving]
        if more > len(left):
            raise EngineBusy(f"{len(self._workers)} models are loaded, and all of them are in use")
        leaving += left[: max(0, more)]
        idle = [each for each in idle if each not in leaving]
        leaving += self._evict([each.total for each in (pair.needs, *pair.least)], idle, leaving)
        self._remove(leaving)
        return leaving

    def _evict(
        self, wanted: Iterable[int], idle: list[Resident], leaving: Collection[Resident] = ()
    ) -> list[Resident]:
        """Return as many of the ``idle`` ones as must leave for the first number of ``wanted`` bytes that has
        room, with those that are ``leaving``; none for a model that does not fit in any case: it may fit on a
        device, as the load finds out."""
        free = [self._free([*leaving, *idle[:n]]) for n in range(len(idle) + 1)]
        enough = (n for total in wanted for n, left in enumerate(free) if total <= left)
        return idle[: next(enough, 0)]

    def _residents(self) -> list[Resident]:
        return [each for worker in self._workers for each in (worker, *worker.drafts)]

    def _idle(self) -> list[Resident]:
        """The models that may leave: draft models first, then workers, the longest unused first."""
        idle = (r for r in self._residents() if not r.users and (r.loaded or isinstance(r, WorkerProcess)))
        return sorted(idle, key=lambda r: (isinstance(r, WorkerProcess), r.last_used))

    def _free(self, without: Collection[Resident]) -> int:
        """Bytes for a new model once those in ``without`` have ended."""
        gone = {each for one in without for each in (one, *one.drafts)}
        others = [each for each in self._residents() if each not in gone]
        # Loaded models are missing from the free memory already, except for mapped pages of their files.
        taken = sum(each.needs.mapped if each.loaded else each.needs.total for each in others)
        back = sum(each.needs.total - each.needs.mapped for each in gone if each.loaded)
        free = free_memory() + back - taken
        limit = self._config.daemon.memory_mb * MB
        return min(free, limit - sum(each.needs.total for each in others)) if limit else free

    async def _look_after(self) -> None:
        """Until no worker is left: kill those that hang, unload those idle for too long."""
        limits = self._config.daemon
        tick_s = min(TICK_S, limits.hang_s / 4, (limits.idle_unload_s or TICK_S) / 4)
        last = time.monotonic()
        while self._workers:
            await asyncio.sleep(tick_s)
            now = time.monotonic()
            away_s, last = max(0.0, now - last - tick_s), now
            self._forbid_chores()
            for worker in tuple(self._workers):
                worker.give_up_if_hung(now, away_s)
            for each in self._residents():
                if self.idle_left_s(each) == 0.0 and each in self._residents():
                    log.info("%s is unloaded: it was idle for too long", each.model)
                    self._remove([each])
                    self._begin(self._dismiss([each]))  # not awaited: a worker that hangs does not answer

    def _on_ready(self, worker: WorkerProcess) -> None:
        if worker.loaded:
            ready = worker.ready.result()
            worker.needs = Needs(weights=ready.planned_bytes, mapped=ready.mapped_bytes)
            self._forbid_chores()

    def _on_end(self, worker: WorkerProcess) -> None:
        if worker.crashed:
            self._metrics.add("worker_crashes_total")
        for workers in (self._workers, self._leaving):
            if worker in workers:
                workers.remove(worker)
