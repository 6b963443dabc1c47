"""One turn of a chat: store the question, stream the answer, store it as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from localspec.daemon.exchange import Exchange
from localspec.daemon.generation import generate, nothing
from localspec.daemon.history import History, Session, Status
from localspec.daemon.worker import StreamEvent
from localspec.errors import LocalspecError
from localspec.protocol.events import SessionEvent
from localspec.protocol.frames import Delta
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, Request
from localspec.protocol.results import Result

CHECKPOINT_S = 1.0


class Answer:
    """The answer's text as it comes in, on its way to the client and to the history."""

    def __init__(self, exchange: Exchange, history: History, session: Session, row: int) -> None:
        self._exchange = exchange
        self._history = history
        self._session = session
        self._row = row
        self._texts: list[str] = []
        self._written = 0

    def take(self, event: StreamEvent) -> None:
        if isinstance(event, Delta):
            self._texts.append(event.text)
        self._exchange.stream(event)

    async def write(self, status: Status, text: str | None = None) -> None:
        """Store ``text``, or what came in so far."""
        text = "".join(self._texts) if text is None else text
        await self._history.write_answer(self._session, self._row, text, status)

    @asynccontextmanager
    async def checkpointed(self) -> AsyncIterator[None]:
        """Inside, what came in is stored about each second; an error stores it as failed."""
        writing = asyncio.create_task(self._checkpoint())
        try:
            yield
        except BaseException:
            await _ended(writing)
            await self.write("failed")
            raise
        await _ended(writing)

    async def _checkpoint(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            if len(self._texts) != self._written:
                self._written = len(self._texts)
                await self.write("streaming")


async def answer(exchange: Exchange, session: Session, content: str, options: Options) -> Result:
    """Answer ``content`` with all that was said before it; ``options`` are merged already.

    The question is committed when its turn has come, before anything is generated.
    """
    history = exchange.daemon.history
    async with AsyncExitStack() as turn:
        try:
            async with exchange.waiting():
                await turn.enter_async_context(exchange.daemon.turns.of(session))
        except TimeoutError:
            return nothing(options, "cancelled")
        messages = _alternating(await history.messages(session))
        reply = Answer(exchange, history, session, await history.begin_turn(session, content))
        async with reply.checkpointed():
            _tell(exchange, session)
            prompt = ChatPrompt((*_system(session), *messages, Message("user", content)))
            request = Request(prompt=prompt, options=options, source=f"chat:{session.id}")
            result = await generate(exchange, request, reply.take)
        await reply.write("cancelled" if result.finish_reason == "cancelled" else "complete", result.text)
        _tell(exchange, session)
        return result


def _tell(exchange: Exchange, session: Session) -> None:
    """Something was stored, which a list of sessions may show."""
    if not session.private:
        exchange.daemon.events.publish(SessionEvent(session.id, "changed"))


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
