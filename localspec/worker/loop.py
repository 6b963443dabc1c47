"""The worker's life: load, then rounds while there are requests, frames in between."""

from __future__ import annotations

from localspec.engine.choice import choose
from localspec.engine.engine import Engine
from localspec.engine.events import Degradation, Event, Prefilling, RoundPlayed
from localspec.engine.load import load_engine, speed_of
from localspec.engine.sequence import Sequence
from localspec.errors import EngineError, LocalspecError
from localspec.protocol.events import RoundFacts
from localspec.protocol.frames import (
    Cancel,
    Degraded,
    Delta,
    Done,
    Failed,
    FromWorker,
    Load,
    LoadFailed,
    Loading,
    Prefill,
    Ready,
    Round,
    Stop,
    Submit,
    Teach,
    ToWorker,
)
from localspec.protocol.results import Chunk
from localspec.worker.channel import Channel

PROGRESS_STEP = 0.05


def serve(channel: Channel) -> None:
    """Answer the daemon until it says stop, or is gone."""
    first = channel.receive()
    if not isinstance(first, Load):
        return
    try:
        engine = _load(channel, first)
    except LocalspecError as error:
        channel.send(LoadFailed(error.as_dict()))
        return
    except Exception as error:
        # Whatever it was: who waits for the model is told, and the log says where.
        failed = EngineError(f"the model could not be loaded: {type(error).__name__}: {error}")
        channel.send(LoadFailed(failed.as_dict()))
        raise
    with engine:
        channel.send(
            Ready(
                model=engine.target.model,
                draft=engine.draft.model if engine.draft is not None else None,
                backend=engine.target.name,
                n_ctx=engine.target.capabilities.n_ctx,
                reason=engine.reason,
            )
        )
        Worker(channel, engine).run()


def _load(channel: Channel, load: Load) -> Engine:
    told = {"target": -1.0, "draft": -1.0}

    def progress(stage: str, fraction: float) -> None:
        if fraction - told[stage] >= PROGRESS_STEP or fraction >= 1.0 > told[stage]:
            told[stage] = fraction
            channel.send(Loading(stage, fraction))

    choice = choose(load.model, load.draft, load.model_dirs, backend=load.backend, speed=speed_of)
    return load_engine(choice, config=load.engine, progress=progress, memory=True)


class Worker:
    """Requests by the daemon's ids, and the engine that runs them."""

    def __init__(self, channel: Channel, engine: Engine) -> None:
        self._channel = channel
        self._engine = engine
        self._requests: dict[int, Sequence] = {}
        self._watched: dict[int, int] = {}
        """the daemon's ids of the requests whose rounds are told, by the engine's"""
        engine.on_round = self._on_round

    def run(self) -> None:
        """Rounds while there is work, else wait for a frame."""
        while self._take(self._idle()):
            while self._engine.step() or self._requests:
                self._tell()
                frame = self._channel.poll()
                while frame is not None:
                    if not self._take(frame):
                        return
                    frame = self._channel.poll()
            self._tell()

    def _idle(self) -> ToWorker:
        """The next frame; until it comes, what can wait is done."""
        while self._engine.rest():
            frame = self._channel.poll()
            if frame is not None:
                return frame
        return self._channel.receive()

    def _take(self, frame: ToWorker) -> bool:
        """Act on one frame; False for a stop."""
        if isinstance(frame, Stop):
            return False
        if isinstance(frame, Submit):
            self._submit(frame)
        elif isinstance(frame, Cancel) and frame.id in self._requests:
            self._engine.cancel(self._requests[frame.id].id)
        elif isinstance(frame, Teach):
            self._engine.teach(frame.path, frame.text, frame.workspace)
        return True

    def _submit(self, frame: Submit) -> None:
        try:
            sequence = self._requests[frame.id] = self._engine.submit(frame.request)
        except LocalspecError as error:
            self._channel.send(Failed(frame.id, error.as_dict()))
            return
        if frame.watch:
            self._watched[sequence.id] = frame.id

    def _on_round(self, played: RoundPlayed) -> None:
        """Tell it to those who watch; to nobody else, and at no cost."""
        id = self._watched.get(played.request)
        if id is not None:
            facts = {field: getattr(played, field) for field in RoundFacts.__struct_fields__}
            self._channel.send(Round(id=id, **facts))

    def _tell(self) -> None:
        """Pass on what the requests have to say."""
        for id, sequence in list(self._requests.items()):
            while sequence.events:
                message = _frame(id, sequence.events.popleft())
                self._channel.send(message)
                if isinstance(message, (Done, Failed)):
                    del self._requests[id]
                    self._watched.pop(sequence.id, None)


def _frame(id: int, event: Event) -> FromWorker:
    if isinstance(event, Chunk):
        return Delta(id, event.text, event.tokens)
    if isinstance(event, Prefilling):
        return Prefill(id, event.fraction)
    if isinstance(event, Degradation):
        return Degraded(id, event.source, event.to, event.reason)
    if isinstance(event, LocalspecError):
        return Failed(id, event.as_dict())
    return Done(id, event)
