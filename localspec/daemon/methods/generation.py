"""One generation, from merged options to a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.memory import absolute
from localspec.daemon.relay.exchange import Receiver
from localspec.daemon.workers.pool import key_of
from localspec.protocol.frames import Streamed
from localspec.protocol.messages import CompletionInline
from localspec.protocol.options import Options, check_options
from localspec.protocol.requests import Request
from localspec.protocol.results import FinishReason, Result, Stats


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
    key = key_of(options)
    async with AsyncExitStack() as lease:
        try:
            async with receiver.waiting(first_deadline(request, began)):
                leased = await lease.enter_async_context(
                    daemon.pool.lease(key, lambda frame: receiver.model_progress(key.model, frame))
                )
        except TimeoutError:
            return nothing(options, "cancelled" if receiver.cancelled else "deadline")
        left = waited(request, loop.time() - began)
        take = on_event or receiver.take
        job = leased.worker.submit(left, take, watch=receiver.watched, draft=leased.draft)
        try:
            with receiver.cancelled_by(job.cancel):
                result: Result = await job.end
        except asyncio.CancelledError:
            job.cancel()
            raise
    daemon.metrics.count_result(result)
    return result


def first_deadline(limited: Request | CompletionInline, began: float) -> float | None:
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
