"""Generations, from merged options to a result; the methods of those without a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.memory import absolute
from localspec.daemon.relay.exchange import Exchange, Receiver
from localspec.daemon.workers.pool import key_of
from localspec.errors import InvalidOptions
from localspec.protocol import messages
from localspec.protocol.frames import Streamed
from localspec.protocol.messages import StreamResume
from localspec.protocol.options import Options, check_options
from localspec.protocol.requests import ChatPrompt, Message, Prompt, Request, TextPrompt, TokenPrompt
from localspec.protocol.results import FinishReason, Result, Stats


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
    if params.tokens is not None:
        return TokenPrompt(params.tokens)
    if params.prompt is not None:
        if params.raw:
            return TextPrompt(params.prompt)
        return ChatPrompt((Message("user", params.prompt),), variables=params.variables)
    if not params.messages:
        raise InvalidOptions("messages is empty", "Give at least one message.")
    if params.raw:
        raise InvalidOptions(
            "raw cannot be combined with messages, which need the chat template",
            "Drop raw, or give a prompt.",
        )
    if params.prefilled and params.messages[-1].role != "assistant":
        raise InvalidOptions(
            "prefilled needs a message of the assistant at the end of messages",
            "End `messages` with an assistant message, or drop prefilled.",
        )
    return ChatPrompt(params.messages, params.prefilled, params.variables)


async def generate(
    daemon: Daemon,
    receiver: Receiver,
    request: Request,
    on_event: Callable[[Streamed], None] | None = None,
) -> Result:
    """Run ``request`` on the worker that its (merged) options name; load its model first if need be.

    Its events go to ``on_event``, or else to ``receiver``.

    A cancel, and the end of ``max_ms`` or ``max_prompt_ms`` (which include the load), give a result with the
    text so far. Raises the errors of the load and of the worker.
    """
    loop, options = asyncio.get_running_loop(), request.options
    began = loop.time()
    async with AsyncExitStack() as lease:
        try:
            async with receiver.waiting(first_deadline(request, began)):
                leased = await lease.enter_async_context(
                    daemon.pool.lease(key_of(options), receiver.model_progress)
                )
        except TimeoutError:
            return nothing(options, "cancelled" if receiver.cancelled else "deadline")
        left = waited(request, loop.time() - began)
        take = on_event or receiver.take
        job = leased.worker.submit(left, take, watch=receiver.watched, draft=leased.draft)
        with receiver.cancelled_by(job.cancel):
            result: Result = await job.result()
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


async def merged(daemon: Daemon, options: Options) -> Options:
    """``options`` over the configuration's, including the section of their model; reads the disk, call by
    call in their order.

    Raises :class:`InvalidOptions`.
    """
    if options.workspace:
        absolute(options.workspace)
    async with daemon.merging:
        return check_options(await asyncio.to_thread(daemon.pool.sections.merged, options))
