"""What the daemon does for each method of the wire."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
from msgspec.structs import replace

from localspec._version import __version__
from localspec.daemon import chat, memory
from localspec.daemon.exchange import Exchange
from localspec.daemon.generation import generate
from localspec.daemon.pool import key_of
from localspec.daemon.worker import WorkerProcess
from localspec.errors import Gone, InvalidOptions
from localspec.models.catalogue import list_models
from localspec.protocol import messages
from localspec.protocol.events import SessionEvent
from localspec.protocol.frames import Ready
from localspec.protocol.options import Options, check_options
from localspec.protocol.requests import ChatPrompt, FimPrompt, Message, Prompt, Request, TextPrompt
from localspec.protocol.results import Result

Handler = Callable[[Exchange, Any], Awaitable[object]]


async def models_list(exchange: Exchange, params: messages.Nothing) -> messages.ModelList:
    daemon = exchange.daemon
    found = await asyncio.to_thread(list_models, daemon.config.model_dirs)
    loaded = {
        (name, ready.backend)
        for worker, ready in daemon.pool.loaded()
        for name in (worker.key.model, ready.model)
    }
    return messages.ModelList(tuple(replace(model, loaded=_is_among(loaded, model)) for model in found))


async def session_open(exchange: Exchange, params: messages.SessionOpen) -> messages.SessionOpened:
    """Loads the model first, so that no session is left behind when it cannot be loaded."""
    daemon = exchange.daemon
    options = _merged(exchange, params.options)
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


async def session_list(exchange: Exchange, params: messages.Nothing) -> messages.SessionList:
    return messages.SessionList(await exchange.daemon.history.summaries())


async def session_get(exchange: Exchange, params: messages.SessionId) -> messages.SessionContent:
    history = exchange.daemon.history
    session = await history.session(params.session)
    return messages.SessionContent(session.id, session.title, await history.messages(session))


async def chat_send(exchange: Exchange, params: messages.ChatSend) -> Result:
    session = await exchange.daemon.history.session(params.session)
    options = params.options.over(session.options)
    if session.private:
        options = replace(options, remember=False)
    exchange.progress("queued", 0.0)
    return await chat.answer(exchange, session, params.content, _merged(exchange, options))


async def generate_text(exchange: Exchange, params: messages.Generate) -> Result:
    request = Request(prompt=_prompt(params), options=_merged(exchange, params.options))
    exchange.progress("queued", 0.0)
    return await generate(exchange, request, exchange.stream)


async def completion_inline(exchange: Exchange, params: messages.CompletionInline) -> messages.Completions:
    """Answers with whole items, not with a stream: only a finished completion can be shown."""
    options = _merged(exchange, params.options)
    request = Request(
        prompt=FimPrompt(params.prefix, params.suffix, params.path, params.language, params.extra),
        max_ms=params.max_ms,
        source="run" if params.path is None else f"file:{params.path}",
    )
    # Without temperature all items would be the same one.
    count = params.n if options.temperature else 1
    with exchange.newest.hold(params.path, exchange):
        results = await asyncio.gather(
            *(
                generate(exchange, replace(request, options=_varied(options, i)), exchange.round)
                for i in range(count)
            )
        )
    texts = dict.fromkeys(result.text for result in results if result.text)
    items = tuple(messages.CompletionItem(secrets.token_hex(8), text) for text in texts)
    return messages.Completions(items, results[0].stats, results[0])


async def events_subscribe(exchange: Exchange, params: messages.EventsSubscribe) -> messages.Nothing:
    exchange.subscription.kinds = frozenset(params.kinds)
    return messages.Nothing()


async def metrics(exchange: Exchange, params: messages.Nothing) -> messages.Metrics:
    totals = exchange.daemon.metrics
    return messages.Metrics(totals.totals(), totals.text())


async def daemon_status(exchange: Exchange, params: messages.Nothing) -> messages.DaemonStatus:
    daemon = exchange.daemon
    return messages.DaemonStatus(
        pid=os.getpid(),
        version=__version__,
        protocol=messages.PROTOCOL,
        uptime_s=time.monotonic() - daemon.started,
        socket=daemon.socket,
        url=daemon.url,
        resident_bytes=_resident(os.getpid()),
        connections=len(daemon.connections),
        running=daemon.running,
        models=tuple(_loaded(worker, ready) for worker, ready in daemon.pool.loaded()),
    )


async def daemon_shutdown(exchange: Exchange, params: messages.Nothing) -> messages.Nothing:
    exchange.daemon.stopping.set()
    return messages.Nothing()


HANDLERS: dict[str, Handler] = {
    "models/list": models_list,
    "session/open": session_open,
    "session/list": session_list,
    "session/get": session_get,
    "chat/send": chat_send,
    "generate": generate_text,
    "completion/inline": completion_inline,
    "memory/stats": memory.stats,
    "memory/forget": memory.forget,
    "memory/prime": memory.prime,
    "events/subscribe": events_subscribe,
    "metrics": metrics,
    "daemon/status": daemon_status,
    "daemon/shutdown": daemon_shutdown,
}
"""``initialize`` and ``$/cancelRequest`` are about the connection, which answers them itself."""

NEED_A_MODEL = frozenset({"session/open", "chat/send", "generate", "completion/inline"})
"""These are held to the limit on all connections together, and wait for a load."""


def _merged(exchange: Exchange, options: Options) -> Options:
    if options.workspace:
        memory.absolute(options.workspace)
    return check_options(options.over(exchange.daemon.config.options))


def _varied(options: Options, number: int) -> Options:
    """The options of one of several answers: a seed that was given differs for each."""
    if options.seed is None or number == 0:
        return options
    return replace(options, seed=(options.seed + number) % 2**63)


def _prompt(params: messages.Generate) -> Prompt:
    if (params.prompt is None) == (params.messages is None):
        raise InvalidOptions("give either prompt or messages", "Give exactly one of them.")
    if params.prompt is None:
        if not params.messages:
            raise InvalidOptions("messages is empty", "Give at least one message.")
        if params.raw:
            raise InvalidOptions("raw is for a prompt: messages need the chat template", "Drop raw.")
        return ChatPrompt(params.messages)
    return TextPrompt(params.prompt) if params.raw else ChatPrompt((Message("user", params.prompt),))


def _is_among(loaded: set[tuple[str, str]], model: messages.ModelDescription) -> bool:
    """Whether a model is loaded, by its name or path, on the backend of its format: an id may have two."""
    return any((name, model.backend) in loaded for name in (model.id, model.path))


def _loaded(worker: WorkerProcess, ready: Ready) -> messages.LoadedModel:
    resident = None if worker.pid is None else _resident(worker.pid)
    return messages.LoadedModel(
        ready.model, ready.draft, worker.pid or 0, resident, worker.users, ready.backend
    )


def _resident(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
