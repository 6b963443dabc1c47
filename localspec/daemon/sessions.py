"""The chats' methods: open, list, read, say something."""

from __future__ import annotations

from msgspec.structs import replace

from localspec.daemon import chat
from localspec.daemon.exchange import Exchange
from localspec.daemon.generation import merged
from localspec.daemon.pool import key_of
from localspec.errors import Gone
from localspec.protocol import messages
from localspec.protocol.events import SessionEvent
from localspec.protocol.results import Result


async def open_new(exchange: Exchange, params: messages.SessionOpen) -> messages.SessionOpened:
    """Loads the model first, so that no session is left behind when it cannot be loaded."""
    daemon = exchange.daemon
    options = merged(exchange, params.options)
    key = key_of(options)
    try:
        async with (
            exchange.waiting(),
            daemon.pool.lease(key, lambda frame: exchange.model_progress(key.model, frame)) as worker,
        ):
            ready = worker.ready.result()
    except TimeoutError:
        raise Gone("the session was not opened: it was cancelled") from None
    session = await daemon.history.new_session(params.options, params.system, params.private)
    if not params.private:
        daemon.events.publish(SessionEvent(session.id, "opened"))
    proposer = options.proposer or "auto"
    pairing = messages.Pairing(ready.model, ready.draft, proposer, ready.backend, ready.reason)
    return messages.SessionOpened(session.id, pairing)


async def list_all(exchange: Exchange, params: messages.Nothing) -> messages.SessionList:
    return messages.SessionList(await exchange.daemon.history.summaries())


async def get(exchange: Exchange, params: messages.SessionId) -> messages.SessionContent:
    history = exchange.daemon.history
    session = await history.session(params.session)
    return messages.SessionContent(session.id, session.title, await history.messages(session))


async def send(exchange: Exchange, params: messages.ChatSend) -> Result:
    session = await exchange.daemon.history.session(params.session)
    options = params.options.over(session.options)
    if session.private:
        options = replace(options, remember=False)
    exchange.progress("queued", 0.0)
    return await chat.answer(exchange, session, params.content, merged(exchange, options))
