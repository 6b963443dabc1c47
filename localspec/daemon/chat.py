"""One turn of a chat: store the question, stream the answer, store it as it grows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from localspec.daemon.exchange import Exchange
from localspec.daemon.generation import generate, merged, nothing
from localspec.daemon.history import History
from localspec.daemon.store import Session, Turn
from localspec.daemon.stream import Stream, streamed
from localspec.daemon.worker import StreamEvent
from localspec.errors import LocalspecError
from localspec.protocol.events import SessionEvent
from localspec.protocol.frames import Delta
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, Request
from localspec.protocol.results import Result
from localspec.protocol.sessions import ChatEdit, ChatRegenerate, ChatSend, Status

log = logging.getLogger(__name__)

CHECKPOINT_S = 1.0


async def send(exchange: Exchange, params: ChatSend) -> Result:
    return await _take_turn(exchange, params, Turn(params.content))


async def edit(exchange: Exchange, params: ChatEdit) -> Result:
    return await _take_turn(exchange, params, Turn(params.content, params.message))


async def regenerate(exchange: Exchange, params: ChatRegenerate) -> Result:
    return await _take_turn(exchange, params, Turn(message=params.message))


async def _take_turn(exchange: Exchange, params: ChatSend | ChatRegenerate, turn: Turn) -> Result:
    """Answer as a stream, which goes on for a while when its client is lost."""
    daemon = exchange.daemon
    session = await daemon.history.session(params.session)
    options = params.options.over(session.options)
    if session.private:
        options = replace(options, remember=False)
    options = await merged(exchange, options)
    return await streamed(
        exchange,
        lambda stream: answer(stream, session, turn, options),
        session=session.id,
        patience=daemon.streams.grace,
    )


class Answer:
    """The answer's text as it comes in, on its way to the client and to the history."""

    def __init__(self, stream: Stream, history: History, session: Session, row: int) -> None:
        self._stream = stream
        self._history = history
        self._session = session
        self._row = row
        self._texts: list[str] = []
        self._written = 0

    def take(self, event: StreamEvent) -> None:
        if isinstance(event, Delta):
            self._texts.append(event.text)
        self._stream.stream(event)

    async def end(self, status: Status, text: str | None = None) -> None:
        """Store ``text``, or what came in; that it cannot be stored takes it from nobody who reads it."""
        try:
            await self._write(status, text)
        except LocalspecError as error:
            log.error("an answer could not be stored: %s", error)
            _tell(self._stream, self._session, SessionEvent(self._session.id, "unsaved"))
        else:
            _tell(self._stream, self._session, SessionEvent(self._session.id, "changed"))

    @asynccontextmanager
    async def checkpointed(self) -> AsyncIterator[None]:
        """Inside, what came in is stored about each second; an error stores it as failed."""
        writing = asyncio.create_task(self._checkpoint())
        try:
            yield
        except BaseException:
            await _ended(writing)
            await self.end("failed")
            raise
        await _ended(writing)

    async def _checkpoint(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            if len(self._texts) != self._written:
                self._written = len(self._texts)
                await self._write("streaming")

    async def _write(self, status: Status, text: str | None = None) -> None:
        text = "".join(self._texts) if text is None else text
        await self._history.write_answer(self._session, self._row, text, status)


async def answer(stream: Stream, session: Session, turn: Turn, options: Options) -> Result:
    """Answer ``turn`` with all that was said before it; ``options`` are merged already.

    The question is committed when its turn has come, before anything is generated.
    """
    history = stream.daemon.history
    stream.progress("queued", 0.0)
    async with AsyncExitStack() as lock:
        try:
            async with stream.waiting():
                await lock.enter_async_context(stream.daemon.turns.of(session))
        except TimeoutError:
            return nothing(options, "cancelled")
        begun = await history.begin_turn(session, turn)
        stream.message = begun.answer
        reply = Answer(stream, history, session, begun.answer)
        async with reply.checkpointed():
            _tell(stream, session, SessionEvent(session.id, "changed"))
            messages = (*_system(session), *_alternating(begun.before), Message("user", begun.question))
            request = Request(prompt=ChatPrompt(messages), options=options, source=session.source)
            result = await generate(stream, request, reply.take)
        await reply.end("cancelled" if result.finish_reason == "cancelled" else "complete", result.text)
        return result


def _tell(stream: Stream, session: Session, event: SessionEvent) -> None:
    """Something happened that a list of sessions may show."""
    if not session.private:
        stream.daemon.events.publish(event)


def _system(session: Session) -> tuple[Message, ...]:
    return () if session.system is None else (Message("system", session.system),)


def _alternating(messages: tuple[Message, ...]) -> list[Message]:
    """The turns that were answered: chat templates want user and assistant by turns."""
    pairs = zip(messages, messages[1:], strict=False)
    return [m for pair in pairs if (pair[0].role, pair[1].role) == ("user", "assistant") for m in pair]


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    except LocalspecError:
        pass  # a checkpoint that could not be written; the last write tells
