"""Methods of the sessions: open, list, read, configure, fork, close, delete."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from localspec import home
from localspec.daemon.chats.store import Session
from localspec.daemon.daemon import Daemon
from localspec.daemon.methods import memory
from localspec.daemon.methods.generation import merged
from localspec.daemon.relay.exchange import Exchange
from localspec.daemon.workers.pool import key_of
from localspec.errors import InvalidOptions
from localspec.protocol import messages as wire
from localspec.protocol.frames import Ready
from localspec.protocol.messages import Nothing
from localspec.protocol.options import Options


async def open_new(daemon: Daemon, exchange: Exchange, params: wire.SessionOpen) -> wire.SessionOpened:
    """Open a session; loads the model first, so that no session is left behind if it cannot be loaded."""
    options = await merged(daemon, params.options)
    pairing = await _pairing(daemon, exchange, options, "opened")
    kept = _kept(params.options, options)
    session = await daemon.history.new_session(kept, params.system, params.private)
    daemon.publish(session, "opened")
    return wire.SessionOpened(session.id, pairing)


async def list_some(daemon: Daemon, exchange: Exchange, params: wire.SessionQuery) -> wire.SessionList:
    return wire.SessionList(await daemon.history.summaries(params))


async def get(daemon: Daemon, exchange: Exchange, params: wire.SessionId) -> wire.SessionContent:
    history = daemon.history
    session = await history.session(params.session)
    messages = await history.use(session, lambda store: store.messages(session.id))
    left = daemon.streams.unfollowed(session.id)
    return wire.SessionContent(
        session=session.id,
        title=session.title,
        options=session.options,
        system=session.system,
        private=session.private,
        messages=tuple(replace(m, stream=left[m.id]) if m.id in left else m for m in messages),
    )


async def rename(daemon: Daemon, exchange: Exchange, params: wire.SessionRename) -> Nothing:
    title = " ".join(params.title.split())
    if not title:
        raise InvalidOptions("the title is blank", "Give a title with visible characters.")
    session = await daemon.history.session(params.session)
    await daemon.history.use(session, lambda store: store.rename(session.id, title))
    daemon.publish(session, "renamed")
    return Nothing()


async def configure(
    daemon: Daemon, exchange: Exchange, params: wire.SessionConfigure
) -> wire.SessionConfigured:
    """Set a session's options from its next turn on; loads another model first, and changes nothing if that
    fails."""
    session = await daemon.history.session(params.session)
    options = await merged(daemon, params.options)
    before = await merged(daemon, session.options)
    pairing = None
    if key_of(options) != key_of(before):
        pairing = await _pairing(daemon, exchange, options, "changed")
    kept = _kept(params.options, options)
    await daemon.history.use(session, lambda store: store.configure(session.id, kept))
    daemon.publish(session, "changed")
    return wire.SessionConfigured(pairing)


async def fork(daemon: Daemon, exchange: Exchange, params: wire.SessionFork) -> wire.SessionForked:
    history = daemon.history
    copy = await history.fork(await history.session(params.session), params.message)
    daemon.publish(copy, "opened")
    return wire.SessionForked(copy.id)


async def close(daemon: Daemon, exchange: Exchange, params: wire.SessionId) -> Nothing:
    """Cancel the running answers of a session; a private session is deleted."""
    session = await daemon.history.session(params.session)
    if session.private:
        await _delete(daemon, session)
    else:
        await daemon.streams.end(session.id)
    return Nothing()


async def delete(daemon: Daemon, exchange: Exchange, params: wire.SessionId) -> Nothing:
    session = await daemon.history.session(params.session)
    await _delete(daemon, session)
    daemon.publish(session, "deleted")
    return Nothing()


async def _delete(daemon: Daemon, session: Session) -> None:
    """Delete a session from the history first, so that no new turn begins; then cancel its answers, and drop
    its caches and what was learnt from it."""
    source = session.source
    await daemon.history.use(session, lambda store: store.delete(session.id))
    await daemon.streams.end(session.id)
    await daemon.pool.forget(source)
    await asyncio.to_thread(home.delete_chat_caches, source)
    if not session.private:
        await memory.forget_chat(daemon, source)


async def _pairing(daemon: Daemon, exchange: Exchange, options: Options, what: str) -> wire.Pairing:
    """Load the models that ``options`` name; returns their pairing. Raises the load's error."""
    async with (
        exchange.needed(f"the request was cancelled: the session was not {what}"),
        daemon.pool.lease(key_of(options), exchange.model_progress) as (worker, pair, _),
    ):
        ready: Ready = worker.ready.result()
    draft = None if pair.draft is None else pair.draft.name
    reason = f"{ready.reason}; {pair.drafter.why}"
    return wire.Pairing(ready.model, draft, options.proposer or "auto", ready.backend, reason)


def _kept(options: Options, merged: Options) -> Options:
    """The options that a session keeps: with a draft model, also the model that it was paired with."""
    if options.draft in (None, "auto", "none"):
        return options
    return replace(options, model=merged.model)
