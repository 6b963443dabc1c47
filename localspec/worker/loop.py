"""The worker's life: load, then rounds while there are requests, frames in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from localspec.engine.engine import Engine
from localspec.engine.events import Event as SequenceEvent
from localspec.engine.events import RoundPlayed
from localspec.engine.learning import SPEED_CONTEXT
from localspec.engine.load import load_engine
from localspec.engine.prompt import Encoded
from localspec.engine.sequence import Sequence
from localspec.errors import EngineError, Gone, LocalspecError, ModelChanged, OutOfMemory
from localspec.models.model import Model
from localspec.models.pair import Pair, pair_from
from localspec.protocol.events import Delta, Done, Event, Failed, Round, RoundFacts
from localspec.protocol.frames import (
    Cancel,
    Forget,
    Load,
    LoadFailed,
    Loading,
    Ready,
    RequestEvent,
    Stop,
    Submit,
    Teach,
    Tokenize,
    Tokenized,
    ToWorker,
)
from localspec.protocol.results import Result
from localspec.worker.apart import LONG, Apart, Fate, size_of
from localspec.worker.channel import Call, Channel
from localspec.worker.pulse import PERIOD_S, Pulse

T = TypeVar("T")

PROGRESS_STEP = 0.05
READ_PER_S = 1e10
"""bytes of weights that a step of one token reads a second, before any was measured"""
TOGETHER = 4
"""times as fast as one by one are the tokens of a prompt, at the least"""


def serve(channel: Channel) -> bool:
    """Answer the daemon until it says stop, or is gone. Returns whether all has ended: not where a text is
    being tokenized still, with a vocabulary that is left to the process' exit."""
    first = channel.receive()
    if not isinstance(first, Load):
        return True
    pulse = Pulse(channel)
    try:
        with pulse.busy():
            pair = pair_from(first.pair)
            engine = _load(channel, first, pair)
    except LocalspecError as error:
        channel.send(LoadFailed(error.as_dict()))
        return True
    except MemoryError:
        channel.send(LoadFailed(OutOfMemory("there is not enough memory to load the model").as_dict()))
        return True
    except Exception as error:
        # Whatever it was: who waits for the model is told, and the log says where.
        failed = EngineError(f"the model could not be loaded: {type(error).__name__}: {error}")
        channel.send(LoadFailed(failed.as_dict()))
        raise
    draft = pair.draft if engine.draft is not None else None  # it may have been left out
    with engine:
        channel.send(
            Ready(
                model=engine.target.model,
                draft=engine.draft.model if engine.draft is not None else None,
                backend=engine.target.name,
                n_ctx=engine.target.capabilities.n_ctx,
                reason=engine.reason,
                path=pair.target.place,
                draft_path=None if draft is None else draft.place,
            )
        )
        pulse.expect(slowest_step(engine, pair.target))
        return Worker(channel, engine, pulse).run()


def _load(channel: Channel, load: Load, pair: Pair) -> Engine:
    told = {"target": -1.0, "draft": -1.0}

    def progress(stage: str, fraction: float) -> None:
        if fraction - told[stage] >= PROGRESS_STEP or fraction >= 1.0 > told[stage]:
            told[stage] = fraction
            channel.send(Loading(stage, fraction))

    return load_engine(pair, config=load.engine, progress=progress, memory=True, free=load.free)


def slowest_step(engine: Engine, target: Model) -> float:
    """Seconds that a step may well take, which is one that reads a piece of a prompt."""
    tokens = engine.target.capabilities.max_batch / TOGETHER
    plain = engine.learning.costs.measured(SPEED_CONTEXT).get(1)
    return tokens * (plain if plain is not None else target.weight_bytes / READ_PER_S)


class Worker:
    """Requests by the daemon's ids, and the engine that runs them."""

    def __init__(self, channel: Channel, engine: Engine, pulse: Pulse) -> None:
        self._channel = channel
        self._engine = engine
        self._pulse = pulse
        self._requests: dict[int, Sequence] = {}
        self._watched: dict[int, int] = {}
        """the daemon's ids of the requests whose rounds are told, by the engine's"""
        self._begun: set[int] = set()
        """the daemon's ids of the requests whose first text was sent"""
        self._apart = Apart(channel)
        self._spoilt = False
        """whether the model's file has changed: another worker is to load it as it is now"""
        engine.on_round = self._on_round
        channel.on_urgent = engine.hurry

    def run(self) -> bool:
        """Rounds while there is work, else wait for a frame; at the end close the engine.

        Returns whether its models are freed: not while a text is being tokenized, which may take longer than
        the daemon waits for what was learnt to be written.
        """
        try:
            self._serve()
        finally:
            is_idle = self._apart.close()
            self._engine.close(free=is_idle)
        return is_idle

    def _serve(self) -> None:
        while True:
            frame = self._idle()
            with self._pulse.busy():
                if not (self._take(frame) and self._work()):
                    return

    def _work(self) -> bool:
        """Rounds until there is no more work; False for a stop, and where the model's file has changed."""
        while self._pulse.step(self._engine.step) or self._requests:
            self._tell()
            if self._spoilt:
                return False
            frame = self._channel.poll()
            while frame is not None:
                if not self._take(frame):
                    return False
                frame = self._channel.poll()
        self._tell()
        return not self._spoilt

    def _idle(self) -> ToWorker | Call:
        """The next frame or call; until it comes, what can wait is done."""
        while not self._apart and self._engine.rest():
            frame = self._channel.poll()
            if frame is not None:
                return frame
        if not self._apart:
            return self._channel.receive()
        with self._pulse.busy():
            while (frame := self._channel.poll(PERIOD_S)) is None:
                self._pulse.step(lambda: None)
        return frame

    def _take(self, frame: ToWorker | Call) -> bool:
        """Act on one frame or call; False for a stop."""
        if isinstance(frame, Stop):
            return False
        if isinstance(frame, Submit):
            fate, encode = Fate(frame.request.source), partial(self._engine.encode, frame.request)
            then = partial(self._submit, frame, fate)
            self._find(frame.id, size_of(frame.request.prompt), fate, encode, then)
        elif isinstance(frame, Tokenize):
            find = partial(self._engine.target.vocabulary.encode, frame.text, special=frame.special)
            fate = Fate()
            self._find(frame.id, len(frame.text), fate, find, partial(self._tokenize, frame, fate))
        elif isinstance(frame, Forget):
            self._engine.forget(frame.source)
            self._apart.forget(frame.source)
        elif isinstance(frame, Cancel) and frame.id in self._requests:
            self._engine.cancel(self._requests[frame.id].id)
        elif isinstance(frame, Cancel):
            self._apart.cancel(frame.id)
        elif isinstance(frame, Teach):
            self._engine.teach(frame.path, frame.text, frame.workspace)
        elif callable(frame):
            self._pulse.step(frame)
        return True

    def _find(
        self,
        id: int,
        size: int,
        fate: Fate,
        find: Callable[[], T],
        then: Callable[[Callable[[], T]], None],
    ) -> None:
        """Find a text's tokens, which is a step as well, or apart from the steps where it is long."""
        if size > LONG:
            self._apart.begin(id, fate, find, then)
        else:
            self._pulse.step(partial(then, find))

    def _submit(self, frame: Submit, fate: Fate, encode: Callable[[], Encoded]) -> None:
        try:
            found = _nothing if fate.dropped else encode
            sequence = self._requests[frame.id] = self._engine.submit(frame.request, found)
        except LocalspecError as error:
            self._send(frame.id, Failed(error.as_dict()))
            return
        sequence.forgotten = fate.forgotten
        if fate.cancelled:
            self._engine.cancel(sequence.id)
        if frame.watch:
            self._watched[sequence.id] = frame.id

    def _tokenize(self, frame: Tokenize, fate: Fate, encode: Callable[[], list[int]]) -> None:
        if fate.cancelled:
            self._send(frame.id, Failed(Gone("it was cancelled").as_dict()))
            return
        vocabulary = self._engine.target.vocabulary
        tokens = encode()
        if frame.start and vocabulary.bos is not None:
            tokens.insert(0, vocabulary.bos)
        pieces = tuple(map(vocabulary.text_of, tokens)) if frame.pieces else ()
        self._send(frame.id, Tokenized(tuple(tokens), pieces))

    def _on_round(self, played: RoundPlayed) -> None:
        """Post it, where the rounds of the request are watched."""
        id = self._watched.get(played.request)
        if id is not None:
            facts = {field: getattr(played, field) for field in RoundFacts.__struct_fields__}
            self._channel.post(RequestEvent(id, Round(**facts)))

    def _tell(self) -> None:
        """Pass the requests' events on."""
        for id, sequence in list(self._requests.items()):
            while sequence.events:
                self._pass_on(id, sequence, sequence.events.popleft())

    def _pass_on(self, id: int, sequence: Sequence, event: SequenceEvent) -> None:
        if isinstance(event, LocalspecError):
            self._spoilt |= isinstance(event, ModelChanged)
            self._end(id, sequence, Failed(event.as_dict()))
        elif isinstance(event, Result):
            self._end(id, sequence, Done(event))
        elif isinstance(event, Delta) and id in self._begun:
            self._channel.post(RequestEvent(id, event))
        else:
            # The first text is sent at once: a thread would have to wait for the next forward.
            if isinstance(event, Delta):
                self._begun.add(id)
            self._send(id, event)

    def _end(self, id: int, sequence: Sequence, event: Done | Failed) -> None:
        self._send(id, event)
        del self._requests[id]
        self._begun.discard(id)
        self._watched.pop(sequence.id, None)

    def _send(self, id: int, event: Event | Tokenized) -> None:
        self._channel.send(RequestEvent(id, event))


def _nothing() -> Encoded:
    """The tokens of a prompt that nobody wants any more."""
    return Encoded([], frozenset())
