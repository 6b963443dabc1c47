"""Methods of generations without a session, and the way of any generation from merged options to a result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

from localspec.daemon.daemon import Daemon
from localspec.daemon.relay import Exchange, Receiver
from localspec.daemon.workers.pool import key_of
from localspec.errors import EngineCrashed, InvalidOptions
from localspec.protocol import messages, requests
from localspec.protocol.frames import Streamed
from localspec.protocol.messages import StreamResume
from localspec.protocol.options import Options, check_options
from localspec.protocol.requests import FinishReason, Prompt, Request, Result, Stats


async def generate_text(daemon: Daemon, exchange: Exchange, params: messages.Generate) -> Result:
    request = Request(
        prompt=_prompt(params),
        options=await merge_options(daemon, params.options),
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
        what = "exactly one of prompt, tokens and messages must be given"
        raise InvalidOptions(what, "Give one, and drop the others.")
    if params.tools and (params.raw or params.tokens is not None):
        raise InvalidOptions("tools need the chat template", "Drop tools, or give messages or a prompt.")
    if params.tokens is not None:
        return requests.TokenPrompt(params.tokens)
    if params.prompt is not None and params.raw:
        return requests.TextPrompt(params.prompt)
    messages = params.messages if params.prompt is None else (requests.Message("user", params.prompt),)
    if not messages:
        raise InvalidOptions("messages is empty", "Give at least one message.")
    if params.raw:
        what = "raw cannot be combined with messages, which need the chat template"
        raise InvalidOptions(what, "Drop raw, or give a prompt.")
    if params.prefilled and messages[-1].role != "assistant":
        what = "prefilled needs a message of the assistant at the end of messages"
        raise InvalidOptions(what, "End `messages` with an assistant message, or drop prefilled.")
    names = [tool.name for tool in params.tools]
    if params.tool is not None and params.tool not in names:
        what = f"there is no tool named {params.tool[:60]!r}"
        raise InvalidOptions(what, f"Name one of {', '.join(names)[:200]}.")
    if params.tool_choice == "required" and not names:
        what = "a tool call is required, but there are no tools"
        raise InvalidOptions(what, "Give tools, or drop tool_choice.")
    return requests.ChatPrompt(
        messages,
        params.prefilled,
        params.variables,
        params.tools,
        params.tool_choice,
        params.tool,
        params.parallel_tool_calls,
    )


async def generate(
    daemon: Daemon, receiver: Receiver, request: Request, on_event: Callable[[Streamed], None] | None = None
) -> Result:
    """Run ``request`` on the worker that its (merged) options name; load its model first if need be. Its
    events go to ``on_event``, or else to ``receiver``.

    A cancel, and the end of ``max_ms`` or ``max_prompt_ms`` (which include the load), give a result with the
    text so far. A request that its worker had not read when it died is sent once more, to a new one. Raises
    the errors of the load and of the worker."""
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
            left = shorten_deadlines(request, loop.time() - began)
            take = on_event or receiver.take
            try:
                job = leased.worker.submit(left, take, draft=leased.draft)
                with receiver.call_on_cancel(job.cancel):
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


def shorten_deadlines(request: Request, seconds: float) -> Request:
    """``request`` with its deadlines ``seconds`` nearer, but a millisecond away at least."""

    def shorten(ms: int | None) -> int | None:
        return None if ms is None else max(1, round(ms - 1000 * seconds))

    return replace(request, max_ms=shorten(request.max_ms), max_prompt_ms=shorten(request.max_prompt_ms))


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


async def merge_options(daemon: Daemon, options: Options) -> Options:
    """``options`` over the configuration's, including the section of their model; reads the disk, call by
    call in their order. Raises :class:`InvalidOptions`."""
    if options.workspace:
        absolute(options.workspace)
    async with daemon.merging:
        return check_options(await asyncio.to_thread(daemon.pool.sections.merge_options, options))
