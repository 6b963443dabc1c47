"""One turn of a chat: store the question, stream the answer, store it as it grows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
from msgspec.structs import replace

from localspec.daemon.chats.store import Session, Turn
from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.generation import generate, merged, nothing
from localspec.daemon.relay.exchange import Exchange
from localspec.daemon.relay.stream import Stream
from localspec.errors import LocalspecError
from localspec.protocol.frames import DELTA, Streamed
from localspec.protocol.messages import ChatEdit, ChatRegenerate, ChatSend, Status
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, Request
from localspec.protocol.results import Result

log = logging.getLogger(__name__)

CHECKPOINT_S = 1.0


async def send(daemon: Daemon, exchange: Exchange, params: ChatSend) -> Result:
    return await _take_turn(daemon, exchange, params, Turn(params.content))


async def edit(daemon: Daemon, exchange: Exchange, params: ChatEdit) -> Result:
    return await _take_turn(daemon, exchange, params, Turn(params.content, params.message))


async def regenerate(daemon: Daemon, exchange: Exchange, params: ChatRegenerate) -> Result:
    return await _take_turn(daemon, exchange, params, Turn(message=params.message))


async def _take_turn(
    daemon: Daemon, exchange: Exchange, params: ChatSend | ChatRegenerate, turn: Turn
) -> Result:
    """Answer as a stream, which goes on for a while when its client is lost."""
    session = await daemon.history.session(params.session)
    options = params.options.over(session.options)
    if session.private:
        options = replace(options, remember=False)
    options = await merged(daemon, options)
    return await daemon.streams.run(
        exchange,
        lambda stream: answer(daemon, stream, session, turn, options),
        session=session.id,
        patience=daemon.streams.grace,
    )


class Text(msgspec.Struct):
    """The text of a delta."""

    text: str


class Answer:
    """The answer's text as it comes in, on its way to the client and to the history."""

    def __init__(self, daemon: Daemon, stream: Stream, session: Session, row: int) -> None:
        self._daemon = daemon
        self._stream = stream
        self._session = session
        self._row = row
        self._text = ""
        self._unread: list[bytes] = []
        """the params of the deltas after that text"""

    def take(self, event: Streamed) -> None:
        if event.method == DELTA:
            self._unread.append(event.params)
        self._stream.take(event)

    async def end(self, status: Status, text: str | None = None) -> None:
        """Store ``text``, or the text so far. A failure to store it does not end the stream: it is logged."""
        try:
            await self._write(status, text)
        except LocalspecError as error:
            log.error("an answer could not be stored: %s", error)
            self._daemon.publish(self._session, "unsaved")
        else:
            self._daemon.publish(self._session, "changed")

    @asynccontextmanager
    async def checkpointed(self) -> AsyncIterator[None]:
        """A context in which the text is stored every :data:`CHECKPOINT_S`; an error stores it as failed."""
        writing = asyncio.create_task(self._checkpoint())
        try:
            try:
                yield
            finally:
                writing.cancel()
                await asyncio.wait([writing])
        except BaseException:
            await self.end("failed")
            raise

    async def _checkpoint(self) -> None:
        with contextlib.suppress(LocalspecError):  # the last write reports the error
            while True:
                await asyncio.sleep(CHECKPOINT_S)
                if self._unread:
                    await self._write("streaming")

    async def _write(self, status: Status, text: str | None = None) -> None:
        if text is None:
            unread, self._unread = self._unread, []
            self._text += "".join(msgspec.json.decode(params, type=Text).text for params in unread)
            text = self._text
        await self._daemon.history.use(
            self._session, lambda store: store.write_answer(self._row, text, status)
        )


async def answer(daemon: Daemon, stream: Stream, session: Session, turn: Turn, options: Options) -> Result:
    """Answer ``turn`` with all messages before it as context; ``options`` are merged already.

    The question is stored when the session's lock is taken, before anything is generated.
    """
    async with AsyncExitStack() as lock:
        try:
            async with stream.waiting():
                await lock.enter_async_context(daemon.turn_of(session))
        except TimeoutError:
            return nothing(options, "cancelled")
        begun = await daemon.history.use(session, lambda store: store.begin_turn(session.id, turn))
        stream.message = begun.answer
        reply = Answer(daemon, stream, session, begun.answer)
        async with reply.checkpointed():
            daemon.publish(session, "changed")
            messages = [*_alternating(begun.before), Message("user", begun.question)]
            if session.system is not None:
                messages.insert(0, Message("system", session.system))
            request = Request(prompt=ChatPrompt(tuple(messages)), options=options, source=session.source)
            result = await generate(daemon, stream, request, reply.take)
        await reply.end("cancelled" if result.finish_reason == "cancelled" else "complete", result.text)
        return result


def _alternating(messages: tuple[Message, ...]) -> list[Message]:
    """The turns that were answered: chat templates require user and assistant in alternation."""
    pairs = zip(messages, messages[1:], strict=False)
    return [m for pair in pairs if (pair[0].role, pair[1].role) == ("user", "assistant") for m in pair]
