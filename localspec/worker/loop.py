"""The worker's main loop: load the models, then step the engine, and handle frames between steps."""

from __future__ import annotations

import argparse
import ctypes
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial

from localspec.constraints.constraint import Attempt
from localspec.engine.engine import Engine
from localspec.engine.learning import SPEED_CONTEXT
from localspec.engine.load import OverNodes, Progress, add_draft, load_target, open_backend
from localspec.engine.prompt import Encoded
from localspec.engine.sequence import Event as SequenceEvent
from localspec.engine.sequence import Sequence
from localspec.errors import EngineError, Gone, LocalspecError, OutOfMemory
from localspec.models.descriptions import name_of
from localspec.models.fit import nodes_of
from localspec.models.model import Model
from localspec.models.pair import pair_from
from localspec.models.template import RENDERER
from localspec.protocol import frames
from localspec.protocol.frames import LOAD, GrantTurn, RequestEvent, TokenizedFrame, TokenizeFrame, ToWorker
from localspec.protocol.options import Options
from localspec.protocol.requests import (
    ChatPrompt,
    Delta,
    Done,
    EngineConfig,
    Failed,
    Request,
    Result,
    TokenPrompt,
)
from localspec.worker.channel import PERIOD_S, Call, Channel, Posted, Pulse
from localspec.worker.threads import GrammarTooSlow, JobState, T, TextThreads, Then, takes_long

log = logging.getLogger(__name__)

PROGRESS_STEP = 0.05
READ_PER_S = 1e10
"""bytes of weights per second that a step of one token is assumed to read, before one was measured"""
TOGETHER = 4
"""least factor by which a prompt's tokens are faster than tokens one by one"""
PR_SET_PDEATHSIG = 1


def serve(channel: Channel) -> bool:
    """Serve the daemon until it sends a stop, or has gone. Return True if the models are freed; False if a
    thread still tokenizes a text, so that they are left to the exit of the process."""
    first = channel.receive()
    if not isinstance(first, frames.Load):
        return True
    pulse, name = Pulse(channel), name_of(first.pair.target.description)
    try:
        with pulse.busy():
            pair = pair_from(first.pair)
            RENDERER.start()  # while the model is loaded
            config, over_nodes = _share(channel, pair.target, first.engine, first.free)
            sent = _thin_progress(lambda frame: channel.send(RequestEvent(LOAD, frame)))
            engine = load_target(
                pair, config=config, progress=sent, memory=True, free=first.free, over_nodes=over_nodes
            )
    except Exception as error:
        # Of any kind: the daemon gets a message.
        channel.send(RequestEvent(LOAD, Failed(failure_of(error, name).as_dict())))
        return True
    with engine:
        ready = frames.TargetReady(
            model=engine.target.model,
            backend=engine.target.name,
            n_ctx=engine.target.capabilities.n_ctx,
            reason=engine.reason,
            offloaded_bytes=engine.target.capabilities.offloaded_bytes,
            sequences=engine.target.capabilities.max_sequences,
            planned_bytes=engine.needs.total,
            mapped_bytes=engine.needs.mapped,
            placement=engine.placement,
        )
        channel.send(RequestEvent(LOAD, ready))
        pulse.expected_s = slowest_step(engine, pair.target)
        return Worker(channel, engine, pulse).run()


def _share(
    channel: Channel, target: Model, config: EngineConfig, free: int | None
) -> tuple[EngineConfig, OverNodes | None]:
    """The settings to load a target with, and the way to load it over the machines that share it, if any."""
    if not nodes_of(target, config):
        return config, None
    from localspec.ranks import backend, rpc  # take 20 ms, and few models are shared

    lost = partial(_end_by_loss, channel)
    if target.format == "mlx":
        return config, partial(backend.open_over_nodes, lost=lost)
    config, servers = rpc.prepare_model(target, config, lost, free)
    return config, partial(open_backend, servers=servers)


def _end_by_loss(channel: Channel, error: LocalspecError) -> None:
    """End this process by the loss of another machine."""
    channel.send(RequestEvent(LOAD, Failed(error.as_dict())))
    os._exit(1)


def _thin_progress(send: Callable[[frames.Loading], None]) -> Progress:
    """Return a function that sends some of the progress it gets."""
    reported = -1.0

    def progress(stage: str, fraction: float) -> None:
        nonlocal reported
        if fraction - reported >= PROGRESS_STEP or fraction >= 1.0 > reported:
            reported = fraction
            send(frames.Loading(stage, fraction))

    return progress


def failure_of(error: Exception, name: str) -> LocalspecError:
    """Return the error of the load of a model, for the daemon; one of an unexpected kind is logged."""
    if isinstance(error, LocalspecError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory(f"there is not enough memory to load {name}")
    log.error("%s could not be loaded", name, exc_info=error)
    return EngineError(f"{name} could not be loaded: {type(error).__name__}: {error}")


def slowest_step(engine: Engine, target: Model) -> float:
    """Return the seconds that a step may take: those of the longest piece of a prompt."""
    tokens = engine.target.capabilities.max_batch / TOGETHER
    plain = engine.learning.costs.list_measured(SPEED_CONTEXT).get(1)
    return tokens * (plain if plain is not None else target.weight_bytes / READ_PER_S)


class Worker:
    """Requests by the daemon's ids, and the engine that runs them."""

    def __init__(self, channel: Channel, engine: Engine, pulse: Pulse) -> None:
        self._channel = channel
        self._engine = engine
        self._pulse = pulse
        self._requests: dict[int, Sequence] = {}
        self._begun: set[int] = set()
        """the daemon's ids of requests whose first text was sent"""
        self._may_rest = True
        self._turn = GrantTurn(0, math.inf)
        self._turn_began = 0.0
        self._waits = False
        self._apart = TextThreads(channel, engine.target.vocabulary)
        channel.on_preempt = engine.preempt

    def run(self) -> bool:
        """Step the engine while there is work, else wait for a frame; at the end close the engine. Return
        True if its models are freed: they are not while a text is being tokenized, which may take too
        long."""
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
        """Step the engine until there is no work; return False for a stop."""
        while True:
            while (frame := self._next()) is not None:
                if not self._take(frame):
                    return False
            is_busy = self._pulse.step(self._engine.step)
            self._send_events()
            if not (is_busy or self._requests):
                return True

    def _next(self) -> ToWorker | Call | None:
        """Return the next frame or call that has come; wait for one if the turn of requests is over."""
        spent_s = time.monotonic() - self._turn_began
        if spent_s < self._turn.seconds or not self._requests:
            return self._channel.poll()
        if not self._waits:
            self._waits = True
            self._channel.send(frames.TurnOver(self._turn.number, spent_s))
        return self._channel.receive()

    def _idle(self) -> ToWorker | Call:
        """Return the next frame or call; do the engine's chores until it comes."""
        while not self._apart and self._may_rest and self._engine.rest():
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
        """Handle one frame or call; return False for a stop."""
        if isinstance(frame, frames.Stop):
            return False
        if isinstance(frame, frames.Submit):
            fate, encode = JobState(frame.request.source), partial(self._engine.encode, frame.request, None)
            then = partial(self._submit, frame, fate)
            is_long = takes_long(frame.request.prompt, frame.request.options)
            self._find(frame.id, is_long, fate, encode, then)
        elif isinstance(frame, frames.LoadDraft | frames.DropDraft):
            self._pulse.step(partial(self._change_drafts, frame))
        elif isinstance(frame, TokenizeFrame):
            fate, find = JobState(), lambda _: self._tokens_of(frame)
            is_long = takes_long(frame.text, Options())
            self._find(frame.id, is_long, fate, find, partial(self._tokenize, frame, fate))
        elif isinstance(frame, frames.Forget):
            self._engine.forget(frame.source)
            self._apart.forget(frame.source)
        elif isinstance(frame, frames.Cancel):
            self._cancel(frame.id)
        elif isinstance(frame, frames.Teach):
            self._engine.teach(frame.path, frame.text, frame.workspace)
        elif isinstance(frame, frames.Rest | GrantTurn):
            self._limit(frame)
        elif callable(frame):
            self._pulse.step(frame)
        return True

    def _limit(self, frame: frames.Rest | GrantTurn) -> None:
        if isinstance(frame, frames.Rest):
            self._may_rest = frame.allowed
            return
        if frame.number != self._turn.number:
            self._turn_began = time.monotonic()
        self._turn, self._waits = frame, False

    def _cancel(self, id: int) -> None:
        if id in self._requests:
            self._engine.cancel(self._requests[id].id)
        else:
            self._apart.cancel(id)

    def _change_drafts(self, frame: frames.LoadDraft | frames.DropDraft) -> None:
        """Load or free a draft model; the requests under way wait."""
        if isinstance(frame, frames.DropDraft):
            self._engine.drop_draft(frame.draft)
            self._send(frame.id, frames.Drafted())
            return
        pair, progress = pair_from(frame.pair), _thin_progress(partial(self._send, frame.id))
        try:
            drafted = add_draft(self._engine, pair, frame.id, progress=progress, free=frame.free)
        except Exception as error:
            # Of any kind: it ends the requests that named this draft model, and no others.
            failed = failure_of(error, pair.draft.name if pair.draft is not None else "")
            self._send(frame.id, Failed(failed.as_dict()))
        else:
            self._send(frame.id, drafted)

    def _find(
        self, id: int, is_long: bool, fate: JobState, find: Callable[[Attempt], T], then: Then[T]
    ) -> None:
        """Tokenize a text by ``find``: as a step of its own, or in another thread if it takes long."""

        def read_or_fail(attempt: Attempt) -> T:
            try:
                return find(attempt)
            except (LocalspecError, GrammarTooSlow):
                raise
            except Exception as error:
                # Of any kind: what a client sent must not end the requests of others.
                log.error("a request could not be read", exc_info=error)
                what = f"{type(error).__name__}: {error}"
                raise EngineError(f"the request could not be read: {what}") from None

        def end(result: Callable[[], T]) -> None:
            try:
                then(result)
            except LocalspecError as error:
                self._send(id, Failed(error.as_dict()))

        if is_long:
            self._apart.begin(id, fate, read_or_fail, end)
        else:
            self._pulse.step(lambda: end(lambda: read_or_fail(lambda _: None)))

    def _submit(self, frame: frames.Submit, fate: JobState, encode: Callable[[], Encoded]) -> None:
        found = (lambda: Encoded([], frozenset())) if fate.dropped else encode
        sequence = self._requests[frame.id] = self._engine.submit(frame.request, found, frame.draft)
        sequence.forgotten = fate.forgotten
        if fate.cancelled:
            self._engine.cancel(sequence.id)

    def _tokens_of(self, frame: TokenizeFrame) -> TokenizedFrame:
        """Return the tokens of a text or a chat. Raises :class:`InvalidOptions`, and :class:`ContextExceeded`
        for a chat that is too long."""
        vocabulary = self._engine.target.vocabulary
        if isinstance(frame.text, str):
            tokens = vocabulary.encode(frame.text, special=frame.special)
        else:
            prompt = frame.text if isinstance(frame.text, ChatPrompt) else TokenPrompt(frame.text)
            tokens = self._engine.read(Request(prompt=prompt, options=Options(overflow="refuse"))).tokens
        if frame.start and vocabulary.bos is not None:
            tokens.insert(0, vocabulary.bos)
        return TokenizedFrame(tuple(tokens), tuple(map(vocabulary.text_of, tokens)) if frame.pieces else ())

    def _tokenize(self, frame: TokenizeFrame, fate: JobState, encode: Callable[[], TokenizedFrame]) -> None:
        if fate.cancelled:
            raise Gone("the tokenization was cancelled", "Send it again if it is still needed.")
        self._send(frame.id, encode())

    def _send_events(self) -> None:
        for id, sequence in list(self._requests.items()):
            while sequence.events:
                self._pass_on(id, sequence.events.popleft())

    def _pass_on(self, id: int, event: SequenceEvent) -> None:
        if isinstance(event, LocalspecError):
            self._end(id, Failed(event.as_dict()))
        elif isinstance(event, Result):
            self._end(id, Done(event))
        elif isinstance(event, Delta) and id in self._begun:
            self._channel.post(Posted(id, event))
        else:
            # The first text is sent at once: the posting thread would only run during the next forward.
            if isinstance(event, Delta):
                self._begun.add(id)
            self._channel.send(Posted(id, event))

    def _end(self, id: int, event: Done | Failed) -> None:
        self._send(id, event)
        del self._requests[id]
        self._begun.discard(id)

    def _send(self, id: int, event: frames.Answer) -> None:
        self._channel.send(RequestEvent(id, event))


def main() -> None:
    parser = argparse.ArgumentParser(prog="localspec.worker")
    parser.add_argument("--fd", type=int, required=True, help="inherited socket to the daemon")
    arguments = parser.parse_args()
    # Its stderr is the daemon's log.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=arguments.fd) as sock:
        if not serve(Channel(sock)):
            # A thread still tokenizes a text. An exit that waits for it lasts until the daemon kills this
            # process, and one that frees the vocabulary meanwhile crashes.
            logging.shutdown()
            os._exit(0)
