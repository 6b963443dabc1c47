"""Generations, from merged options to a result, and the methods that need no session.

These are the methods of generations without one, of the models (list, load, unload, tokenize), and of the
daemon (events, metrics, status, shutdown).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import psutil
from msgspec.structs import replace

from localspec import home
from localspec._version import __version__
from localspec.daemon.daemon import Daemon
from localspec.daemon.relay import Exchange, Receiver
from localspec.daemon.workers.pool import Pool, key_of
from localspec.daemon.workers.worker import WorkerProcess
from localspec.errors import EngineBusy, EngineCrashed, InvalidOptions
from localspec.models.index import marked, read_disk
from localspec.models.pair import Pair
from localspec.protocol import messages
from localspec.protocol.frames import Streamed, Tokenize, Tokenized
from localspec.protocol.messages import StreamResume
from localspec.protocol.options import Options, check_options
from localspec.protocol.requests import (
    ChatPrompt,
    FinishReason,
    Message,
    Prompt,
    Request,
    Result,
    Stats,
    TextPrompt,
    TokenPrompt,
)


async def generate_text(daemon: Daemon, exchange: Exchange, params: messages.Generate) -> Result:
    request = Request(
        prompt=_prompt(params),
        options=await merged(daemon, params.options),
        max_ms=params.max_ms,
        max_prompt_ms=params.max_prompt_ms,
        max_predict_ms=params.max_predict_ms,
        progress=params.progress,
    )

    # Without a session the answer of a lost client is of no use: it is cancelled.
    return await daemon.streams.run(exchange, lambda stream: generate(daemon, stream, request))


async def resume(daemon: Daemon, exchange: Exchange, params: StreamResume) -> Result:
    stream = daemon.streams.find(params.stream)
    return await stream.follow(exchange, params.after_seq)


def _prompt(params: messages.Generate) -> Prompt:
    if [params.prompt, params.tokens, params.messages].count(None) != 2:
        raise InvalidOptions(
            "exactly one of prompt, tokens and messages must be given", "Give one, and drop the others."
        )
    if params.tools and (params.raw or params.tokens is not None):
        raise InvalidOptions("tools need the chat template", "Drop tools, or give messages or a prompt.")
    if params.tokens is not None:
        return TokenPrompt(params.tokens)
    if params.prompt is not None and params.raw:
        return TextPrompt(params.prompt)
    messages = params.messages if params.prompt is None else (Message("user", params.prompt),)
    if not messages:
        raise InvalidOptions("messages is empty", "Give at least one message.")
    if params.raw:
        raise InvalidOptions(
            "raw cannot be combined with messages, which need the chat template",
            "Drop raw, or give a prompt.",
        )
    if params.prefilled and messages[-1].role != "assistant":
        raise InvalidOptions(
            "prefilled needs a message of the assistant at the end of messages",
            "End `messages` with an assistant message, or drop prefilled.",
        )
    names = [tool.name for tool in params.tools]
    if params.tool is not None and params.tool not in names:
        raise InvalidOptions(
            f"there is no tool named {params.tool[:60]!r}", f"Name one of {', '.join(names)[:200]}."
        )
    if params.tool_choice == "required" and not names:
        raise InvalidOptions(
            "a tool call is required, but there are no tools", "Give tools, or drop tool_choice."
        )
    return ChatPrompt(
        messages,
        params.prefilled,
        params.variables,
        params.tools,
        params.tool_choice,
        params.tool,
        params.parallel_tool_calls,
    )


async def generate(
    daemon: Daemon,
    receiver: Receiver,
    request: Request,
    on_event: Callable[[Streamed], None] | None = None,
) -> Result:
    """Run ``request`` on the worker that its (merged) options name; load its model first if need be.

    Its events go to ``on_event``, or else to ``receiver``.

    A cancel, and the end of ``max_ms`` or ``max_prompt_ms`` (which include the load), give a result with the
    text so far. A request that its worker had not read when it died is sent once more, to a new one. Raises
    the errors of the load and of the worker.
    """
    loop, options = asyncio.get_running_loop(), request.options
    key = key_of(options)
    began, again, job = loop.time(), False, None
    while True:
        async with AsyncExitStack() as lease:
            try:
                async with receiver.waiting(first_deadline(request, began)):
                    await daemon.pool.check_form(key, options)
                    leased = await lease.enter_async_context(daemon.pool.lease(key, receiver.model_progress))
            except TimeoutError:
                return nothing(options, "cancelled" if receiver.cancelled else "deadline")
            left = waited(request, loop.time() - began)
            take = on_event or receiver.take
            try:
                job = leased.worker.submit(left, take, watch=receiver.watched, draft=leased.draft)
                with receiver.cancelled_by(job.cancel):
                    result: Result = await job.result()
            except EngineCrashed:
                if again or not (job is None or job.is_unread):
                    raise
                again = True
                continue
        daemon.metrics.count_result(result)
        return result


def first_deadline(limited: Request | messages.CompletionInline, began: float) -> float | None:
    """The time by which the first token must be there, by the clock of ``began``; None for no limit."""
    limits = [ms for ms in (limited.max_ms, limited.max_prompt_ms) if ms is not None]
    return began + min(limits) / 1000 if limits else None


def waited(request: Request, seconds: float) -> Request:
    """``request`` with its deadlines ``seconds`` nearer, but a millisecond away at least."""

    def left(ms: int | None) -> int | None:
        return None if ms is None else max(1, round(ms - 1000 * seconds))

    return replace(request, max_ms=left(request.max_ms), max_prompt_ms=left(request.max_prompt_ms))


def nothing(options: Options, finish_reason: FinishReason) -> Result:
    """The result of a request that ended before it was sent to a worker."""
    key = key_of(options)
    return Result(
        text="",
        finish_reason=finish_reason,
        model=key.model,
        draft=None,
        backend=key.backend,
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
        stats=Stats(),
    )


def absolute(path: str) -> str:
    """Return ``path``; raises :class:`InvalidOptions` for a relative one."""
    if not os.path.isabs(path):
        remedy = "Send the absolute path: the daemon's working directory is not that of its clients."
        raise InvalidOptions(f"{path[:80]!r} is not an absolute path", remedy)
    return path


async def merged(daemon: Daemon, options: Options) -> Options:
    """``options`` over the configuration's, including the section of their model; reads the disk, call by
    call in their order.

    Raises :class:`InvalidOptions`.
    """
    if options.workspace:
        absolute(options.workspace)
    async with daemon.merging:
        return check_options(await asyncio.to_thread(daemon.pool.sections.merged, options))


async def events_subscribe(
    daemon: Daemon, exchange: Exchange, params: messages.EventsSubscribe
) -> messages.Nothing:
    exchange.client.kinds = frozenset(params.kinds)
    return messages.Nothing()


async def metrics(daemon: Daemon, exchange: Exchange, params: messages.Nothing) -> messages.Metrics:
    return messages.Metrics(daemon.metrics.totals(), daemon.metrics.text())


async def daemon_status(
    daemon: Daemon, exchange: Exchange, params: messages.Nothing
) -> messages.DaemonStatus:
    problem = daemon.http_problem
    return messages.DaemonStatus(
        pid=os.getpid(),
        version=__version__,
        protocol=messages.PROTOCOL,
        uptime_s=time.monotonic() - daemon.started,
        socket=daemon.socket,
        url=daemon.url,
        resident_bytes=resident_bytes(os.getpid()),
        connections=len(daemon.connections),
        running=len(daemon.busy),
        models=tuple(described(daemon.pool, worker, worker.pair) for worker, _ in daemon.pool.loaded()),
        settings=daemon.settings.state(),
        http=daemon.http,
        http_problem=None if problem is None else problem.message,
        http_remedy=None if problem is None else problem.remedy,
        history_problem=daemon.history.problem,
    )


async def daemon_shutdown(
    daemon: Daemon, exchange: Exchange, params: messages.DaemonShutdown
) -> messages.Nothing:
    if params.if_idle:
        if await daemon.history.has_private():
            raise EngineBusy(
                "the daemon holds chats in memory only (private, or not stored on a full disk), which would "
                "be lost",
                "End these chats, or run `localspec daemon stop`.",
            )
        if daemon.busy:
            raise EngineBusy(f"the daemon is busy (requests: {len(daemon.busy)})")
        if daemon.http_flag:
            home.left_open_path().touch()
    daemon.stopping.set()
    return messages.Nothing()


async def list_all(daemon: Daemon, exchange: Exchange, params: messages.Nothing) -> messages.ModelList:
    workers = daemon.pool.loaded()
    drafts = ((each.place, ready.backend) for w, ready in workers for each in w.drafts if each.loaded)
    loaded = dict.fromkeys(drafts) | {(w.pair.target.place, r.backend): r.placement for w, r in workers}
    # In a thread, which is not cancelled: a model may be on a disk that responds late or never.
    disk = await asyncio.to_thread(read_disk, daemon.config.model_dirs)
    models = await asyncio.to_thread(marked, disk.found, loaded)
    return messages.ModelList(models, tuple(disk.stores))


async def load(daemon: Daemon, exchange: Exchange, params: messages.ModelLoad) -> messages.LoadedModel:
    """Load a model before it is needed; after a cancel the load goes on for later requests."""
    given = Options(
        model=params.model, draft=params.draft, backend=params.backend, workspace=params.workspace
    )
    key = key_of(await merged(daemon, given))
    async with (
        exchange.needed(
            "the request was cancelled; the model is still being loaded",
            "Unload it with `localspec models unload` if it is not needed.",
        ),
        daemon.pool.lease(key, exchange.model_progress, keep_alive_s=params.keep_alive_s) as lease,
    ):
        pass
    return described(daemon.pool, lease.worker, lease.pair)


async def tokenize(daemon: Daemon, exchange: Exchange, params: messages.Tokenize) -> messages.Tokenized:
    """Tokenize a text; loads the model if need be."""
    key = key_of(await merged(daemon, Options(model=params.model)))
    async with (
        exchange.needed("the request was cancelled"),
        daemon.pool.lease(key, exchange.model_progress) as lease,
    ):
        job = lease.worker.begin(
            lambda id: Tokenize(id, params.text, params.start, params.special, params.pieces)
        )
        found: Tokenized = await job.result()
    return messages.Tokenized(found.tokens, found.pieces)


async def unload(daemon: Daemon, exchange: Exchange, params: messages.ModelUnload) -> messages.Unloaded:
    # A prefetch must not keep a model busy.
    await daemon.editors.clear()
    return messages.Unloaded(tuple(await daemon.pool.unload(params.model)))


def described(pool: Pool, worker: WorkerProcess, pair: Pair) -> messages.LoadedModel:
    """The description of a worker's loaded model, as it is used in ``pair``."""
    ready, held = worker.ready.result(), [each for each in worker.drafts if each.loaded]
    return messages.LoadedModel(
        model=ready.model,
        draft=None if pair.draft is None else pair.draft.name,
        pid=worker.pid or 0,
        resident_bytes=None if worker.pid is None else resident_bytes(worker.pid),
        running=worker.users,
        backend=ready.backend,
        idle_left_s=pool.idle_left_s(worker),
        path=pair.target.place,
        drafts=tuple(messages.LoadedDraft(each.model, each.place, each.users) for each in held),
        reason=f"{ready.reason}; {pair.drafter.why}",
        n_ctx=ready.n_ctx,
        offloaded_bytes=ready.offloaded_bytes,
        sequences=ready.sequences,
        planned_bytes=sum(each.needs.total for each in (worker, *held)),
        placement=ready.placement,
    )


def resident_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
