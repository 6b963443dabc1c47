"""One request and its one response: what a handler sees of the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from localspec.daemon.asker import Asker
from localspec.daemon.daemon import Daemon
from localspec.daemon.deltas import Deltas
from localspec.daemon.events import Subscription
from localspec.daemon.outbox import Outbox
from localspec.daemon.pace import Pace
from localspec.daemon.worker import StreamEvent
from localspec.errors import LocalspecError
from localspec.protocol import jsonrpc
from localspec.protocol.events import RoundEvent, RoundFacts
from localspec.protocol.frames import Degraded, Delta, Loading, Prefill, Round
from localspec.protocol.jsonrpc import Id, ProtocolFault
from localspec.protocol.messages import (
    ModelProgress,
    SpeculationDegraded,
    StreamDelta,
    StreamProgress,
    StreamStarted,
)


class Newest:
    """The newest completion of each path: a newer one cancels the older at once."""

    def __init__(self) -> None:
        self._by_path: dict[str, Exchange] = {}

    @contextmanager
    def hold(self, path: str | None, exchange: Exchange) -> Iterator[None]:
        """Inside, ``exchange`` is the completion for ``path``."""
        if path is None:
            yield
            return
        if (older := self._by_path.get(path)) is not None:
            older.cancel()
        self._by_path[path] = exchange
        try:
            yield
        finally:
            if self._by_path.get(path) is exchange:
                del self._by_path[path]


class Shared(NamedTuple):
    """What the requests of one connection have in common."""

    daemon: Daemon
    outbox: Outbox
    subscription: Subscription
    newest: Newest
    pace: Pace


class Exchange(Asker):
    """Sends what belongs to one request, and ends it when it is cancelled."""

    def __init__(self, id: Id, shared: Shared) -> None:
        super().__init__(shared.daemon)
        self.id = id
        _, self._outbox, self.subscription, self.newest, self.pace = shared
        self._deltas = Deltas(id)
        self._on_lost: Callable[[], None] = self.cancel

    def lose(self) -> None:
        """The client is gone: a stream may go on without it, all else is cancelled."""
        self._on_lost()

    @contextmanager
    def lost_by(self, leave: Callable[[], None]) -> Iterator[None]:
        """Inside, losing the client calls ``leave``."""
        self._on_lost = leave
        try:
            yield
        finally:
            self._on_lost = self.cancel

    # What goes to the client.

    def started(self, stream: str) -> None:
        """Tell what its stream is called."""
        self._notify("stream/started", StreamStarted(self.id, stream))

    def take_up(self, deltas: Deltas, missed: list[StreamDelta]) -> None:
        """Send what was missed of a stream, and its deltas from now on."""
        self._deltas = deltas
        for delta in missed:
            self._notify("stream/delta", delta)

    def progress(self, stage: str, fraction: float) -> None:
        self._notify("stream/progress", StreamProgress(self.id, stage, fraction))

    def stream(self, event: StreamEvent) -> None:
        """Pass a worker's event on."""
        match event:
            case Delta():
                self._outbox.delta(self._deltas, event.text, event.tokens)
            case Prefill():
                facts = ("prefill", event.fraction, event.total, event.cached, event.processed)
                self._notify("stream/progress", StreamProgress(self.id, *facts))
            case Round():
                self.round(event)
            case Degraded():
                self._notify(
                    "speculation/degraded", SpeculationDegraded(self.id, event.source, event.to, event.reason)
                )

    @property
    def watched(self) -> bool:
        """Whether the client wants to hear of the rounds."""
        return RoundEvent.__struct_config__.tag in self.subscription.kinds

    def round(self, event: StreamEvent) -> None:
        """Of a worker's events pass on the rounds alone: all that is told of an answer that comes whole."""
        if isinstance(event, Round):
            facts = {field: getattr(event, field) for field in RoundFacts.__struct_fields__}
            self.subscription.tell(RoundEvent(request=self.id, **facts))

    def model_progress(self, model: str, frame: Loading) -> None:
        self._notify("model/progress", ModelProgress(model, frame.stage, frame.fraction))

    def answer(self, answer: object) -> None:
        """The one response: a result, or the error it is."""
        if isinstance(answer, (LocalspecError, ProtocolFault)):
            frame = jsonrpc.failure(self.id, answer)
        else:
            frame = jsonrpc.result(self.id, answer)
        self._outbox.put(frame, after=self._deltas)

    def _notify(self, method: str, params: object) -> None:
        self._outbox.put(jsonrpc.notification(method, params), after=self._deltas)


class Quiet(Exchange):
    """Work of the daemon's own beside a request: it can be cancelled, and tells the client nothing."""

    def __init__(self, beside: Exchange) -> None:
        vars(self).update(vars(beside))
        self.cancelled = False
        self._on_cancel = []

    @property
    def watched(self) -> bool:
        return False

    def _notify(self, method: str, params: object) -> None:
        pass
