"""Methods of the sessions, and the turns of a chat, which store the question, and the answer as it grows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
from msgspec.structs import replace

from localspec import home
from localspec.daemon.chats import Session, TurnRequest
from localspec.daemon.daemon import Daemon
from localspec.daemon.methods import memory
from localspec.daemon.methods.generation import generate, merge_options, nothing
from localspec.daemon.relay import Exchange, ResumableStream
from localspec.daemon.workers.pool import key_of
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol import messages as wire
from localspec.protocol.frames import DELTA, Streamed, TargetReady
from localspec.protocol.messages import NoParams, Status
from localspec.protocol.options import Options, names_draft
from localspec.protocol.requests import Channel, ChatPrompt, Message, Request, Result, ToolCall, Tools
from localspec.tools.words import ask_in_words, limit_to_words

CHECKPOINT_S = 1.0

log = logging.getLogger(__name__)


async def open_new(daemon: Daemon, exchange: Exchange, params: wire.SessionOpen) -> wire.SessionOpened:
    """Open a session; loads the model first, so that no session is left behind if it cannot be loaded."""
    options = await merge_options(daemon, params.options)
    pairing = await _pairing(daemon, exchange, options, "opened")
    session = await daemon.history.new_session(_options_to_keep(params.options, options), params)
    daemon.publish(session, "opened")
    return wire.SessionOpened(session.id, pairing)


async def list_some(daemon: Daemon, exchange: Exchange, params: wire.SessionQuery) -> wire.SessionList:
    return wire.SessionList(await daemon.history.summaries(params))


async def get(daemon: Daemon, exchange: Exchange, params: wire.SessionId) -> wire.SessionContent:
    history = daemon.history
    session = await history.session(params.session)
    messages = await history.use(session, lambda store: store.messages(session.id))
    left = daemon.streams.find_unfollowed(session.id)
    return wire.SessionContent(
        session=session.id,
        title=session.title,
        options=session.options,
        system=session.system,
        private=session.private,
        messages=tuple(replace(m, stream=left[m.id]) if m.id in left else m for m in messages),
    )


async def rename(daemon: Daemon, exchange: Exchange, params: wire.SessionRename) -> NoParams:
    title = " ".join(params.title.split())
    if not title:
        raise InvalidOptions("the title is blank", "Give a title with visible characters.")
    session = await daemon.history.session(params.session)
    await daemon.history.use(session, lambda store: store.rename(session.id, title))
    daemon.publish(session, "renamed")
    return NoParams()


async def configure(
    daemon: Daemon, exchange: Exchange, params: wire.SessionConfigure
) -> wire.SessionConfigured:
    """Set a session's options from its next turn on, once another model is loaded; else change nothing."""
    session = await daemon.history.session(params.session)
    options = await merge_options(daemon, params.options)
    before = await merge_options(daemon, session.options)
    pairing = None
    if key_of(options) != key_of(before):
        pairing = await _pairing(daemon, exchange, options, "changed")
    kept = _options_to_keep(params.options, options)
    await daemon.history.use(session, lambda store: store.configure(session.id, kept))
    daemon.publish(session, "changed")
    return wire.SessionConfigured(pairing)


async def fork(daemon: Daemon, exchange: Exchange, params: wire.SessionFork) -> wire.SessionForked:
    history = daemon.history
    copy = await history.fork(await history.session(params.session), params.message)
    daemon.publish(copy, "opened")
    return wire.SessionForked(copy.id)


async def delete(daemon: Daemon, exchange: Exchange, params: wire.SessionId) -> NoParams:
    """Delete a session from the history first, so that no new turn begins; then cancel its answers, and drop
    its caches and what was learnt from it."""
    session = await daemon.history.session(params.session)
    source = session.source
    await daemon.history.use(session, lambda store: store.delete(session.id))
    await daemon.streams.end(session.id)
    await daemon.pool.forget(source)
    await asyncio.to_thread(home.delete_chat_caches, source)
    if not session.private:
        await memory.forget_chat(daemon, source)
    daemon.publish(session, "deleted")
    return NoParams()


async def _pairing(daemon: Daemon, exchange: Exchange, options: Options, what: str) -> wire.Pairing:
    """Load the models that ``options`` name; returns their pairing. Raises :class:`InvalidOptions` for a form
    that is not valid, and the load's error."""
    async with exchange.wait_while_needed(f"the request was cancelled: the session was not {what}"):
        await daemon.pool.check_form(key := key_of(options), options)
        async with daemon.pool.lease(key, exchange.model_progress) as (worker, pair, _):
            ready: TargetReady = worker.ready.result()
    draft = None if pair.draft is None else pair.draft.name
    reason = f"{ready.reason}; {pair.drafter.why}"
    proposer = options.proposer or "auto"
    return wire.Pairing(ready.model, draft, proposer, ready.backend, reason, ready.placement)


def _options_to_keep(options: Options, merged: Options) -> Options:
    """The options that a session keeps: with a draft model, also the model that it was paired with."""
    return replace(options, model=merged.model) if names_draft(options) else options


async def send(daemon: Daemon, exchange: Exchange, params: wire.ChatSend) -> Result:
    return await _take_turn(daemon, exchange, params, TurnRequest(params.content))


async def edit(daemon: Daemon, exchange: Exchange, params: wire.ChatEdit) -> Result:
    return await _take_turn(daemon, exchange, params, TurnRequest(params.content, params.message))


async def regenerate(daemon: Daemon, exchange: Exchange, params: wire.ChatRegenerate) -> Result:
    turn = TurnRequest(message=params.message, instead=params.instead)
    return await _take_turn(daemon, exchange, params, turn)


async def results(daemon: Daemon, exchange: Exchange, params: wire.ChatResults) -> Result:
    turn = TurnRequest(results=params.results, instead=params.instead)
    return await _take_turn(daemon, exchange, params, turn)


async def _take_turn(daemon: Daemon, exchange: Exchange, params: wire.ChatTurn, turn: TurnRequest) -> Result:
    """Answer as a stream, which goes on for a while when its client is lost."""
    session = await daemon.history.session(params.session)
    options = params.options.over(session.options)
    if session.private:
        options = replace(options, remember=False)
    options = await merge_options(daemon, options)
    return await daemon.streams.run(
        exchange,
        lambda stream: answer(daemon, stream, session, turn, options, params.tools),
        session=session.id,
    )


class DeltaText(msgspec.Struct):
    text: str
    channel: Channel = "answer"


class StoredAnswer:
    """The answer's text as it comes in, on its way to the client and to the history."""

    def __init__(self, daemon: Daemon, stream: ResumableStream, session: Session, row: int) -> None:
        self._daemon = daemon
        self._stream = stream
        self._session = session
        self._row = row
        self._text = ""

    def take(self, event: Streamed) -> None:
        if event.method == DELTA:
            delta = msgspec.json.decode(event.params, type=DeltaText)
            self._text += delta.text if delta.channel == "answer" else ""
        self._stream.take(event)

    async def end(self, result: Result | None) -> None:
        """Store the answer, or the text so far as failed. A failure is logged, and the stream goes on."""
        try:
            if result is None:
                await self._write("failed", self._text)
            else:
                status: Status = "cancelled" if result.finish_reason == "cancelled" else "complete"
                await self._write(status, result.text, result.calls)
        except LocalspecError as error:
            log.error("an answer could not be stored: %s", error)
            self._daemon.publish(self._session, "unsaved")
        else:
            self._daemon.publish(self._session, "changed")

    @asynccontextmanager
    async def store_while_inside(self) -> AsyncIterator[None]:
        """A context in which the text is stored every :data:`CHECKPOINT_S`; an error stores it as failed."""
        writing = asyncio.create_task(self._checkpoint())
        try:
            try:
                yield
            finally:
                writing.cancel()
                await asyncio.wait([writing])
        except BaseException:
            await self.end(None)
            raise

    async def _checkpoint(self) -> None:
        stored = ""
        with contextlib.suppress(LocalspecError):  # the last write reports the error
            while True:
                await asyncio.sleep(CHECKPOINT_S)
                if self._text != stored:
                    stored = self._text
                    await self._write("streaming", stored)

    async def _write(self, status: Status, text: str, calls: tuple[ToolCall, ...] = ()) -> None:
        history, row = self._daemon.history, self._row
        await history.use(self._session, lambda store: store.write_answer(row, text, status, calls))


async def answer(
    daemon: Daemon,
    stream: ResumableStream,
    session: Session,
    turn: TurnRequest,
    options: Options,
    tools: Tools,
) -> Result:
    """Answer ``turn`` with all messages before it as context; ``options`` are merged already. The question is
    stored when the session's lock is taken, before anything is generated."""
    async with AsyncExitStack() as lock:
        try:
            async with stream.waiting():
                await lock.enter_async_context(daemon.turn_of(session))
        except TimeoutError:
            return nothing(options, "cancelled")
        begun = await daemon.history.use(session, lambda store: store.begin_turn(session.id, turn))
        stream.message = begun.answer
        reply = StoredAnswer(daemon, stream, session, begun.answer)
        async with reply.store_while_inside():
            daemon.publish(session, "changed")
            system = () if session.system is None else (Message("system", session.system),)
            # Several calls in one answer lead small models astray.
            messages = (*system, *begun.before, *begun.now)
            prompt = ChatPrompt(messages, tools=tools, parallel_tool_calls=not tools)
            if turn.instead == "call":
                prompt = replace(prompt, tool_choice="required")
            elif turn.instead == "words":
                prompt, options = ChatPrompt(ask_in_words(messages)), limit_to_words(options)
            request = Request(prompt=prompt, options=options, source=session.source)
            result = await generate(daemon, stream, request, reply.take)
        await reply.end(result)
        return result
