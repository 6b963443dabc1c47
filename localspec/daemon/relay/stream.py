"""One streamed answer: it goes on without its client for a while, and can be resumed."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from localspec.daemon.relay.deltas import Deltas
from localspec.daemon.relay.exchange import Exchange
from localspec.daemon.relay.receiver import Receiver
from localspec.daemon.relay.streams import Streams
from localspec.errors import Gone, LocalspecError
from localspec.protocol.events import Delta, StreamEvent
from localspec.protocol.frames import Loading
from localspec.protocol.results import Result

log = logging.getLogger(__name__)

Work = Callable[["Stream"], Awaitable[Result]]


class Follower:
    """The request that a stream is sent to; ``left`` gets an error when it is replaced or lost."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.left: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def leave(self, why: str) -> None:
        if not self.left.done():
            self.left.set_exception(Gone(why, "Resume the stream, or send the request again."))
            self.left.exception()  # marks it as retrieved, as it may never be awaited


class Stream(Receiver):
    """One generation, sent to its follower; it goes on without one for ``patience`` seconds."""

    def __init__(self, streams: Streams[Stream], *, session: str | None, patience: float) -> None:
        super().__init__()
        self._streams = streams
        self.id = secrets.token_hex(16)
        self.session = session
        self.message: int | None = None
        """the id of the answer's message; None until its turn has begun"""
        self._patience = patience
        self._deltas = Deltas()
        self._follower: Follower | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def start(self, work: Work) -> None:
        self.task: asyncio.Task[Result] = asyncio.create_task(_run(work, self))
        self.task.add_done_callback(self._on_end)

    async def follow(self, exchange: Exchange, after_seq: int = -1) -> Result:
        """Send ``exchange`` the deltas after ``after_seq`` and all later events; returns the result.

        The follower before it gets :class:`Gone`, and so does this one when another takes over. Raises
        the generation's error, and :class:`Gone` for deltas that are no longer kept.
        """
        missed = self._deltas.resume(exchange.id, after_seq)
        if self._follower is not None:
            self._follower.leave("another request has resumed the stream")
        self._cancel_alarm()
        follower = self._follower = Follower(exchange)
        exchange.take_up(self._deltas, missed)
        with exchange.cancelled_by(self.cancel), exchange.lost_by(lambda: self._lose(follower)):
            await asyncio.wait({self.task, follower.left}, return_when=asyncio.FIRST_COMPLETED)
        return follower.left.result() if follower.left.done() else self.task.result()

    # Events of the generation.

    @property
    def followed(self) -> bool:
        """True if there is a follower."""
        return self._follower is not None

    @property
    def watched(self) -> bool:
        return self._follower is not None and self._follower.exchange.watched

    def progress(self, stage: str, fraction: float) -> None:
        if self._follower is not None:
            self._follower.exchange.progress(stage, fraction)

    def stream(self, event: StreamEvent) -> None:
        if self._follower is not None:
            self._follower.exchange.stream(event)
        elif isinstance(event, Delta):
            self._deltas.keep(event.text, event.tokens)

    def model_progress(self, model: str, frame: Loading) -> None:
        if self._follower is not None:
            self._follower.exchange.model_progress(model, frame)

    # Ends.

    def _lose(self, follower: Follower) -> None:
        """Handle the loss of the client of ``follower``."""
        follower.leave("the client's connection was lost")
        if self._follower is not follower:
            return
        self._follower = None
        self._deltas.settle()
        if self.task.done():
            return
        if self._patience:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._give_up)
        else:
            self.cancel()

    def _give_up(self) -> None:
        self._streams.drop(self)
        self.cancel()

    def _on_end(self, task: asyncio.Task[Result]) -> None:
        self._cancel_alarm()
        error = None if task.cancelled() else task.exception()
        if self._follower is None and error is not None and not isinstance(error, LocalspecError):
            log.error("an answer without a client failed", exc_info=error)
        self._streams.on_end(self)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


async def streamed(
    streams: Streams[Stream],
    exchange: Exchange,
    work: Work,
    *,
    session: str | None = None,
    patience: float = 0,
) -> Result:
    """Run ``work`` as a stream that ``exchange`` follows from its start; returns the result."""
    stream = Stream(streams, session=session, patience=patience)
    exchange.started(stream.id)
    streams.add(stream, exchange)
    stream.start(work)
    return await stream.follow(exchange)


async def _run(work: Work, stream: Stream) -> Result:
    return await work(stream)
