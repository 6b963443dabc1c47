"""One answer that is streamed: it goes on without its client for a while, and can be picked up again."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from localspec.daemon.asker import Asker
from localspec.daemon.daemon import Daemon
from localspec.daemon.deltas import Deltas
from localspec.daemon.exchange import Exchange
from localspec.daemon.worker import StreamEvent
from localspec.errors import Gone, LocalspecError
from localspec.protocol.frames import Delta, Loading
from localspec.protocol.results import Result

log = logging.getLogger(__name__)

Work = Callable[["Stream"], Awaitable[Result]]


class Follower:
    """The request that a stream is told to; ``left`` gets the error it ends with if it is no longer."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.left: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def leave(self, why: str) -> None:
        if not self.left.done():
            self.left.set_exception(Gone(why, "Resume the stream, or send the request again."))
            self.left.exception()  # nobody may be there to take it


class Stream(Asker):
    """One generation, told to whoever follows it; ``patience`` is how many seconds it goes on for nobody."""

    def __init__(self, daemon: Daemon, *, session: str | None, patience: float) -> None:
        super().__init__(daemon)
        self.id = secrets.token_hex(16)
        self.session = session
        self.message: int | None = None
        """the number of the message that it answers with, once its turn has come"""
        self._patience = patience
        self._deltas = Deltas()
        self._follower: Follower | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def start(self, work: Work) -> None:
        self.task: asyncio.Task[Result] = asyncio.create_task(_run(work, self))
        self.task.add_done_callback(self._on_end)

    async def follow(self, exchange: Exchange, after_seq: int = -1) -> Result:
        """Tell ``exchange`` what came after delta ``after_seq`` and what comes; returns the end.

        Who followed before is told :class:`Gone`, and so is this one when another takes over. Raises
        what the generation raises, and :class:`Gone` for what is no longer kept.
        """
        missed = self._deltas.resume(exchange.id, after_seq)
        if self._follower is not None:
            self._follower.leave("another request follows the stream now")
        self._cancel_alarm()
        follower = self._follower = Follower(exchange)
        exchange.take_up(self._deltas, missed)
        with exchange.cancelled_by(self.cancel), exchange.lost_by(lambda: self._lose(follower)):
            await asyncio.wait({self.task, follower.left}, return_when=asyncio.FIRST_COMPLETED)
        return follower.left.result() if follower.left.done() else self.task.result()

    # What the generation tells.

    @property
    def followed(self) -> bool:
        """Whether somebody is told."""
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

    # Its ends.

    def _lose(self, follower: Follower) -> None:
        """The client of ``follower`` is gone."""
        follower.leave("the client is gone")
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
        self.daemon.streams.drop(self)
        self.cancel()

    def _on_end(self, task: asyncio.Task[Result]) -> None:
        self._cancel_alarm()
        error = None if task.cancelled() else task.exception()
        if self._follower is None and error is not None and not isinstance(error, LocalspecError):
            log.error("an answer that nobody followed failed", exc_info=error)
        self.daemon.busy.discard(self)
        self.daemon.streams.on_end(self)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


async def streamed(
    exchange: Exchange, work: Work, *, session: str | None = None, patience: float = 0
) -> Result:
    """Do ``work`` as a stream that ``exchange`` follows from its start; returns the end."""
    daemon = exchange.daemon
    stream = Stream(daemon, session=session, patience=patience)
    exchange.started(stream.id)
    daemon.streams.add(stream)
    daemon.busy.discard(exchange)
    daemon.busy.add(stream)
    stream.start(work)
    return await stream.follow(exchange)


async def _run(work: Work, stream: Stream) -> Result:
    return await work(stream)
