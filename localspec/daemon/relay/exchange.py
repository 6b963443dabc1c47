"""One request and its one response, for the method's handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localspec.daemon.relay.deltas import Deltas
from localspec.daemon.relay.outbox import Outbox
from localspec.daemon.relay.receiver import Receiver
from localspec.daemon.relay.subscription import Subscription
from localspec.errors import LocalspecError
from localspec.protocol import jsonrpc
from localspec.protocol.events import Degraded, Delta, Progress, Round, RoundEvent, RoundFacts, StreamEvent
from localspec.protocol.frames import Loading
from localspec.protocol.jsonrpc import Id, ProtocolFault
from localspec.protocol.messages import (
    ModelProgress,
    SpeculationDegraded,
    StreamDelta,
    StreamProgress,
    StreamStarted,
)


class Exchange(Receiver):
    """Sends the messages of one request, and ends the request when it is cancelled.

    ``subscription`` is the connection's: all requests of one connection share it.
    """

    def __init__(self, id: Id, outbox: Outbox, subscription: Subscription) -> None:
        super().__init__()
        self.id = id
        self.client: object = outbox
        """identifies the connection"""
        self.subscription = subscription
        self._outbox = outbox
        self._deltas = Deltas(id)
        self._on_lost: Callable[[], None] = self.cancel

    def lose(self) -> None:
        """Handle a lost client: a stream may go on without it, anything else is cancelled."""
        self._on_lost()

    @contextmanager
    def lost_by(self, leave: Callable[[], None]) -> Iterator[None]:
        """Inside, losing the client calls ``leave``."""
        self._on_lost = leave
        try:
            yield
        finally:
            self._on_lost = self.cancel

    # Messages to the client.

    def started(self, stream: str) -> None:
        """Send the name of the stream."""
        self._notify("stream/started", StreamStarted(self.id, stream))

    def take_up(self, deltas: Deltas, missed: list[StreamDelta]) -> None:
        """Send the ``missed`` deltas of a stream, and all later ones."""
        self._deltas = deltas
        for delta in missed:
            self._notify("stream/delta", delta)

    def progress(self, stage: str, fraction: float) -> None:
        self._notify("stream/progress", StreamProgress(self.id, stage, fraction))

    def stream(self, event: StreamEvent) -> None:
        """Forward a worker's event to the client."""
        match event:
            case Delta():
                self._outbox.delta(self._deltas, event.text, event.tokens)
            case Progress():
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
        """True if the client has subscribed to rounds."""
        return RoundEvent.__struct_config__.tag in self.subscription.kinds

    def round(self, event: StreamEvent) -> None:
        """Forward ``event`` if it is a round: the only event sent of an answer that is not streamed."""
        if isinstance(event, Round):
            facts = {field: getattr(event, field) for field in RoundFacts.__struct_fields__}
            self.subscription.send(RoundEvent(request=self.id, **facts))

    def model_progress(self, model: str, frame: Loading) -> None:
        self._notify("model/progress", ModelProgress(model, frame.stage, frame.fraction))

    def answer(self, answer: object) -> None:
        """Send the one response: a result or an error."""
        if isinstance(answer, (LocalspecError, ProtocolFault)):
            frame = jsonrpc.failure(self.id, answer)
        else:
            frame = jsonrpc.result(self.id, answer)
        self._outbox.put(frame, after=self._deltas)

    def _notify(self, method: str, params: object) -> None:
        self._outbox.put(jsonrpc.notification(method, params), after=self._deltas)
