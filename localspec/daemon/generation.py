"""One generation, from merged options to a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec

from localspec.daemon.asker import Asker
from localspec.daemon.memory import absolute
from localspec.daemon.pool import key_of
from localspec.daemon.worker import StreamEvent
from localspec.protocol.options import Options, check_options
from localspec.protocol.requests import Request
from localspec.protocol.results import FinishReason, Result, Stats


async def generate(asker: Asker, request: Request, on_event: Callable[[StreamEvent], None]) -> Result:
    """Run ``request`` on the worker that its options, which are merged already, name; load it if need be.

    A cancel, and the end of ``max_ms`` (which counts the load too), give a result with the text so
    far. Raises what the load or the worker raises.
    """
    loop, options = asyncio.get_running_loop(), request.options
    deadline = None if request.max_ms is None else loop.time() + request.max_ms / 1000
    key = key_of(options)
    async with AsyncExitStack() as lease:
        try:
            async with asker.waiting(deadline):
                worker = await lease.enter_async_context(
                    asker.daemon.pool.lease(key, lambda frame: asker.model_progress(key.model, frame))
                )
        except TimeoutError:
            return nothing(options, "cancelled" if asker.cancelled else "deadline")
        left = None if deadline is None else max(1, round((deadline - loop.time()) * 1000))
        job = worker.submit(msgspec.structs.replace(request, max_ms=left), on_event, watch=asker.watched)
        try:
            with asker.cancelled_by(job.cancel):
                result = await job.end
        except asyncio.CancelledError:
            job.cancel()
            raise
    asker.daemon.metrics.count_result(result)
    return result


def nothing(options: Options, finish_reason: FinishReason) -> Result:
    """The result of a request that ended before a worker had it."""
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


async def merged(asker: Asker, options: Options, path: str | None = None) -> Options:
    """``options`` over the configuration's, of which parts may be for their workspace or model alone.

    ``path``: of the file that is asked about. Raises :class:`InvalidOptions`.
    """
    if options.workspace:
        absolute(options.workspace)
    sections = asker.daemon.pool.sections
    if sections.need_the_disk:
        return check_options(await asyncio.to_thread(sections.merged, options, path))
    return check_options(sections.merged(options))
