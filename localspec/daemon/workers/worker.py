"""One model in a process of its own, with the draft models beside it, and the judgement whether it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from localspec.daemon.workers.job import WorkerJob
from localspec.daemon.workers.resident import HeldDraft, Resident
from localspec.daemon.workers.turns import Turns, TurnShare
from localspec.errors import (
    EngineCrashed,
    InvalidOptions,
    LocalspecError,
    NodeLost,
    ShuttingDown,
    from_dict,
    of_system,
)
from localspec.models.model import Model
from localspec.models.pair import Pair
from localspec.process import surroundings
from localspec.protocol import frames
from localspec.protocol.frames import Load, Loading, Streamed
from localspec.protocol.requests import Done, Failed, Priority, Request

log = logging.getLogger(__name__)

STOP_S = 3.0
"""seconds in which a worker must store its n-gram memory and free its model; then it is killed"""
EXIT_S = 0.3
"""seconds in which a worker must exit after its socket was closed; then it is killed"""
STDERR = 2
KILLED_REMEDY = (
    "Send the request again: the model is loaded anew. If it happens again the system may have run out of "
    "memory: use a smaller model, quantisation or n_ctx."
)
"""for SIGKILL, which the kernel sends for lack of memory, and users by hand"""
REPLACED_REMEDY = "Replace a model's file by renaming a new one, never in place; then send the request again."
"""for SIGBUS, which ends the reader of a mapped file that was cut"""
UNREACHED_REMEDY = "Let the machines of `nodes` reach each other directly, through their firewalls too."
"""for SIGALRM, which ends a rank that waits for others"""
STEPS = 20.0
"""longest duration of a step, as a multiple of the predicted one"""
LOAD_SILENCE = 4.0
"""longest time without a frame during a load, as a multiple of the limit: libraries load slowly from disk"""
LOAD_STILL = 20.0
"""longest time without progress of a load, as a multiple of the limit"""


class Key(NamedTuple):
    """A worker's model, draft model and backend, as the client named them."""

    model: str
    draft: str
    backend: str


class Watch:
    """Judges by its frames whether a worker hangs. All times are monotonic seconds; ``limit_s`` is the time
    that any step may take."""

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._predicted_s = 0.0
        self._steps = -1
        self._moved = self._last_seen = now

    def beat(self, steps: int, predicted_s: float, now: float) -> None:
        """Note a heartbeat: the number of steps done, and the predicted seconds of the current one."""
        self._last_seen = now
        self._predicted_s = predicted_s
        if steps != self._steps:
            self._steps = steps
            self._moved = now

    def note_move(self, now: float) -> None:
        """Note another frame of the worker, or the start of work."""
        self._last_seen = self._moved = now

    def away(self, seconds: float) -> None:
        """Discount ``seconds`` in which the daemon itself was suspended, and read no frames."""
        self._moved += seconds
        self._last_seen += seconds

    def still_s(self, now: float, *, loading: bool) -> float | None:
        """The seconds without progress of a worker that has work, if they are too many; else None."""
        still, silent = now - self._moved, now - self._last_seen
        if loading:
            hung = still > LOAD_STILL * self._limit_s or silent > LOAD_SILENCE * self._limit_s
        else:
            # The prediction is that of the current step; there is no current step without heartbeats.
            hung = silent > self._limit_s or still > max(self._limit_s, STEPS * self._predicted_s)
        return still if hung else None


class WorkerProcess(Resident):
    """A worker from its start by ``command`` to its end; none of its steps may take more than ``hang_s``
    seconds. ``ready`` gets Ready. When the socket ends, every job gets :class:`EngineCrashed` and ``on_end``
    is called once. No method waits for a client."""

    def __init__(
        self,
        key: Key,
        pair: Pair,
        command: tuple[str, ...],
        hang_s: float,
        turns: Turns,
        on_end: Callable[[WorkerProcess], None],
    ) -> None:
        super().__init__(pair.needs)
        self.key = key
        self.pair = pair
        """the pair of the latest request"""
        self.pairs = {key: pair}
        """the pairs that these keys are known to mean"""
        self.servers: set[str] = set()
        """the RPC servers that hold layers of its target"""
        self.may_rest = True
        self.crashed = False
        self._command = command
        self._on_end = on_end
        self._jobs: dict[int, WorkerJob] = {}
        self._last_id = 0
        self._why: LocalspecError | None = None
        """the reason why it takes no more jobs, and ends or has ended"""
        self._watch = Watch(hang_s, time.monotonic())
        self._share = TurnShare(turns, self.send)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def usable(self) -> bool:
        """True if it is loading or loaded."""
        failed = self.ready.done() and not self.loaded
        return not (failed or self._is_closed or self._why)

    @property
    def _is_closed(self) -> bool:
        reader = self._reader
        return reader is not None and (reader.at_eof() or reader.exception() is not None)

    @property
    def model(self) -> str:
        """The model's name: its own once it is loaded, until then the client's."""
        return self.ready.result().model if self.loaded else self.key.model

    def holds(self, target: Model) -> bool:
        """Return True if it has this target's file in this state, or will have, on the same backend."""
        held = self.pair.target
        is_file = (held.place, held.signature) == (target.place, target.signature)
        return is_file and held.description.backend == target.description.backend

    def find_draft(self, draft: Model) -> HeldDraft | None:
        """This draft model, if it is held, in the state in which it was chosen."""
        held = (each for each in self.drafts if each.draft == draft)
        return next((each for each in held if each.draft.signature == draft.signature), None)

    def give_up_if_hung(self, now: float, away_s: float) -> None:
        """Kill it, and fail its jobs at once, if it has work and makes no progress. ``away_s``: seconds in
        which the daemon could not read its frames."""
        self._watch.away(away_s)
        if self._why or self._process is None or not self._jobs:
            return
        loading = not all(each.ready.done() for each in (self, *self.drafts))
        still_s = self._watch.still_s(now, loading=loading)
        if still_s is not None:
            what = "loading" if loading else "answering"
            self._why = EngineCrashed(
                f"the worker process of {self.model} hung while {what}: no progress for {still_s:.0f} s"
            )
            log.error("worker %d: %s", self._process.pid, self._why.message)
            self._fail(self._why)
            self._kill()

    async def start(self, load: Load) -> None:
        """Spawn the process and send it ``load``; the result is awaited in ``ready``."""
        if self._why is not None:
            self._end(self._why)
            return
        try:
            ours, workers = socket.socketpair()
            with ours, workers:
                fd = workers.fileno()
                command, around = (*self._command, "--fd", str(fd)), surroundings()
                # Of its own session, so that a terminal's Ctrl-C reaches the daemon alone.
                self._process = await asyncio.create_subprocess_exec(
                    *command, pass_fds=(fd,), stdin=DEVNULL, stdout=STDERR, start_new_session=True, **around
                )
                kept = socket.socket(fileno=ours.detach())
            self._reader, self._writer = await asyncio.open_connection(sock=kept)
        except OSError as error:
            what = f"the worker process of {self.key.model} could not be started"
            self._end(of_system(error, what) or EngineCrashed(f"{what}: {error.strerror}"))
            return
        log.info("worker %d loads %s", self._process.pid, self.key.model)
        self._watch.note_move(time.monotonic())
        self._jobs[frames.LOAD] = WorkerJob(self.send, frames.LOAD, self.progress, end=self.ready)
        self.send(load)
        self._reading = asyncio.create_task(self._read(self._reader, self._process))
        if self._why is not None:
            await self.stop()

    def submit(
        self, request: Request, on_event: Callable[[Streamed], None], *, draft: int | None = None
    ) -> WorkerJob:
        """Run a request, with the draft model of this number. Without a turn where a GPU holds most of the
        target's weights. Raises as :meth:`begin`."""
        is_on_gpu = self.loaded and 2 * self.ready.result().offloaded_bytes > self.pair.target.weight_bytes
        priority = None if is_on_gpu else request.goes_as
        return self.begin(lambda id: frames.Submit(id, request, draft), on_event, priority)

    def begin(
        self,
        message: Callable[[int], frames.ToWorker],
        on_event: Callable[[Any], None] = lambda _: None,
        priority: Priority | None = None,
    ) -> WorkerJob:
        """Send a message under a new id; the id of a draft model's load is its number. Raises the reason why
        the worker ends or has ended, and :class:`InvalidOptions` for a message that no frame can hold."""
        if self._why is not None or self._is_closed:
            raise self._why or EngineCrashed(f"the worker process of {self.model} has ended")
        id = self._last_id + 1
        try:
            frame = frames.encode_frame(message(id))
        except (OverflowError, RecursionError) as error:
            raise InvalidOptions(
                f"the request cannot be sent to the model's worker process: {error}",
                "Use whole numbers of at most 64 bits, and structures of at most 100 levels.",
            ) from None
        if not self._jobs:
            self._watch.note_move(time.monotonic())
        self._last_id = id
        job = self._jobs[id] = WorkerJob(self.send, id, on_event, priority)
        if priority is not None:
            self._share.begin(priority)
        if self._writer is not None:
            self._writer.write(frame)
        return job

    def send(self, message: frames.ToWorker) -> None:
        """Queue a frame; a frame to an ended worker is lost, and its jobs have failed already."""
        if self._writer is not None:
            self._writer.write(frames.encode_frame(message))

    def rest(self, *, allowed: bool) -> None:
        if self.may_rest != allowed:
            self.may_rest = allowed
            self.send(frames.Rest(allowed))

    async def stop(self) -> None:
        """Have it store its n-gram memory and exit; kill it if that takes too long, or while it loads."""
        self._why = self._why or ShuttingDown(f"{self.key.model} is being unloaded")
        self.send(frames.Stop())
        if not self.ready.done():
            self._kill()
        if self._reading is None:
            return
        await asyncio.wait([self._reading], timeout=STOP_S)
        if not self._reading.done():
            self._kill()
            await self._reading

    async def _read(self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
        try:
            await self._receive_all(reader)
        except OSError:  # the worker's end of the socket is closed, and not all was read there
            for job in self._jobs.values():
                job.is_unread = not job.begun
        except msgspec.DecodeError as error:
            log.error("worker %d sent a damaged frame: %s", process.pid, error)
            self._why = self._why or EngineCrashed(
                f"the worker process of {self.model} sent a damaged frame and was killed"
            )
            self._kill()
        except Exception:  # a defect of localspec must not leave the jobs waiting for ever
            log.exception("the frames of worker %d cannot be read", process.pid)
            self._kill()
        how = await self._exit(process)
        failure = self.ready.exception() if self.ready.done() else None
        if self._why is None and isinstance(failure, LocalspecError):
            log.warning("%s cannot be loaded: %s", self.key.model, failure.message)
            self._why = failure
        self.crashed = self._why is None or isinstance(self._why, EngineCrashed)
        log.log(logging.ERROR if self.crashed else logging.INFO, "worker %d %s", process.pid, how)
        code = process.returncode
        remedy = KILLED_REMEDY if code == -signal.SIGKILL else None
        if code == -signal.SIGBUS:
            how, remedy = f"{how}: was {self.pair.target.place} changed in place?", REPLACED_REMEDY
        if code == -signal.SIGALRM:
            self._why = NodeLost(f"the nodes of {self.key.model} did not connect to it", UNREACHED_REMEDY)
        self._end(self._why or EngineCrashed(f"the worker process of {self.key.model} {how}", remedy))

    async def _receive_all(self, reader: asyncio.StreamReader) -> None:
        """Take frames until the worker closes its end. Raises :class:`msgspec.DecodeError` for a damaged one,
        and :class:`OSError`."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = frames.HEADER.unpack(await reader.readexactly(frames.HEADER.size))
                if length > frames.MAX_FRAME:
                    raise msgspec.DecodeError(f"a frame of {length} bytes")
                self._receive(frames.from_worker_decoder.decode(await reader.readexactly(length)))

    def _receive(self, frame: frames.FromWorker) -> None:
        now = time.monotonic()
        if isinstance(frame, frames.Heartbeat):
            self._watch.beat(frame.steps, frame.predicted_s, now)
            return
        self._watch.note_move(now)
        match frame:
            case Streamed():
                if (job := self._jobs.get(frame.id)) is not None:
                    job.begun = True
                    job.on_event(frame)
            case frames.RequestEvent():
                self._end_job(frame.id, frame.event)
            case frames.TurnOver():
                self._share.over(frame.number, frame.seconds)

    def _end_job(self, id: int, event: frames.Answer) -> None:
        """Take the end of a job, or the progress of a load."""
        job = self._jobs.get(id)
        if job is None:
            if id == frames.LOAD and isinstance(event, Failed):
                self._why = self._why or from_dict(event.error)  # a loaded worker says by what it ends
            return
        if isinstance(event, Loading):
            job.on_event(event)
            return
        del self._jobs[id]
        if job.priority is not None:
            self._share.end(job.priority)
        if job.end.done():
            return
        if isinstance(event, Failed):
            job.end.set_exception(from_dict(event.error))
        else:
            job.end.set_result(event.result if isinstance(event, Done) else event)

    async def _exit(self, process: asyncio.subprocess.Process) -> str:
        """Wait for the end of the process; returns how it ended, as a predicate of a sentence."""
        try:
            async with asyncio.timeout(EXIT_S):
                code = await process.wait()
        except TimeoutError:
            self._kill()
            await process.wait()
            return "closed its socket and was killed"
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"

    def _end(self, error: LocalspecError) -> None:
        self._why = error
        if self._writer is not None:
            self._writer.close()
        self._fail(error)
        self._on_end(self)

    def _fail(self, error: LocalspecError) -> None:
        futures: list[asyncio.Future[Any]] = [self.ready, *(job.end for job in self._jobs.values())]
        for future in futures:
            if not future.done():
                future.set_exception(error)
        self._jobs.clear()
        self._share.leave()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
