"""What the daemon does for each method of the wire."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from localspec._version import __version__
from localspec.daemon import chat, completions, memory, models, sessions
from localspec.daemon.door import leave_open
from localspec.daemon.exchange import Exchange
from localspec.daemon.generation import generate, merged
from localspec.daemon.stream import Stream, streamed
from localspec.errors import EngineBusy, InvalidOptions
from localspec.protocol import messages
from localspec.protocol.requests import ChatPrompt, Message, Prompt, Request, TextPrompt, TokenPrompt
from localspec.protocol.results import Result
from localspec.protocol.sessions import StreamResume

Handler = Callable[[Exchange, Any], Awaitable[object]]


async def generate_text(exchange: Exchange, params: messages.Generate) -> Result:
    request = Request(
        prompt=_prompt(params),
        options=await merged(exchange, params.options),
        max_ms=params.max_ms,
        max_prompt_ms=params.max_prompt_ms,
        max_predict_ms=params.max_predict_ms,
    )

    async def answer(stream: Stream) -> Result:
        stream.progress("queued", 0.0)
        return await generate(stream, request, stream.stream)

    # A one-shot of a lost client is of no use to anybody: it is not gone on with.
    return await streamed(exchange, answer)


async def resume(exchange: Exchange, params: StreamResume) -> Result:
    stream: Stream = exchange.daemon.streams.find(params.stream)
    return await stream.follow(exchange, params.after_seq)


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
        resident_bytes=models.resident_bytes(os.getpid()),
        connections=len(daemon.connections),
        running=len(daemon.busy),
        models=tuple(models.described(daemon.pool, worker) for worker, _ in daemon.pool.loaded()),
        settings=daemon.settings.state(),
        http=daemon.http,
        http_problem=daemon.http_problem,
        history_problem=daemon.history.problem,
    )


async def daemon_shutdown(exchange: Exchange, params: messages.DaemonShutdown) -> messages.Nothing:
    daemon = exchange.daemon
    if params.if_idle:
        if await daemon.history.has_private():
            raise EngineBusy("a private session would end with it")
        if daemon.busy:
            raise EngineBusy("it is at work")
        if daemon.http_flag:
            leave_open()
    daemon.stopping.set()
    return messages.Nothing()


HANDLERS: dict[str, Handler] = {
    "models/list": models.list_all,
    "models/load": models.load,
    "models/unload": models.unload,
    "session/open": sessions.open_new,
    "session/list": sessions.list_some,
    "session/get": sessions.get,
    "session/close": sessions.close,
    "session/delete": sessions.delete,
    "session/rename": sessions.rename,
    "session/configure": sessions.configure,
    "session/fork": sessions.fork,
    "chat/send": chat.send,
    "chat/edit": chat.edit,
    "chat/regenerate": chat.regenerate,
    "stream/resume": resume,
    "generate": generate_text,
    "tokenize": models.tokenize,
    "completion/inline": completions.inline,
    "completion/feedback": completions.feedback,
    "completion/warm": completions.warm,
    "memory/stats": memory.stats,
    "memory/forget": memory.forget,
    "memory/prime": memory.prime,
    "events/subscribe": events_subscribe,
    "metrics": metrics,
    "daemon/status": daemon_status,
    "daemon/shutdown": daemon_shutdown,
}
"""``initialize`` and ``$/cancelRequest`` are about the connection, which answers them itself."""

NEED_A_MODEL = frozenset(
    {
        *("models/load", "session/open", "session/configure", "chat/send", "chat/edit", "chat/regenerate"),
        *("generate", "tokenize", "completion/inline", "completion/warm"),
    }
)
"""These are held to the limit on all connections together, and wait for a load."""

WORK = NEED_A_MODEL | {"memory/forget", "memory/prime", "session/delete"}
"""What a daemon is at work with, and would be broken off."""


def _prompt(params: messages.Generate) -> Prompt:
    if [params.prompt, params.tokens, params.messages].count(None) != 2:
        raise InvalidOptions("give either prompt, tokens or messages", "Give exactly one of them.")
    if params.tokens is not None:
        return TokenPrompt(params.tokens)
    if params.prompt is not None:
        if params.raw:
            return TextPrompt(params.prompt)
        return ChatPrompt((Message("user", params.prompt),), variables=params.variables)
    if not params.messages:
        raise InvalidOptions("messages is empty", "Give at least one message.")
    if params.raw:
        raise InvalidOptions("raw is for a prompt: messages need the chat template", "Drop raw.")
    if params.prefilled and params.messages[-1].role != "assistant":
        raise InvalidOptions("prefilled continues a message of the assistant", "Let one be the last.")
    return ChatPrompt(params.messages, params.prefilled, params.variables)
