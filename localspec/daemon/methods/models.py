"""Methods of the models: list, load and unload them, and tokenize a text with one."""

from __future__ import annotations

import asyncio

import psutil

from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.generation import merge_options
from localspec.daemon.relay import Exchange
from localspec.daemon.workers.pool import Pool, key_of
from localspec.daemon.workers.worker import WorkerProcess
from localspec.models.index import mark_loaded, read_disk
from localspec.models.pair import Pair
from localspec.protocol import messages
from localspec.protocol.frames import TokenizedFrame, TokenizeFrame
from localspec.protocol.options import Options


async def list_all(daemon: Daemon, exchange: Exchange, params: messages.NoParams) -> messages.ModelList:
    workers = daemon.pool.list_loaded()
    drafts = ((each.draft.place, ready.backend) for w, ready in workers for each in w.drafts if each.loaded)
    loaded = dict.fromkeys(drafts) | {(w.pair.target.place, r.backend): r.placement for w, r in workers}
    # In a thread, which is not cancelled: a model may be on a disk that responds late or never.
    disk = await asyncio.to_thread(read_disk, daemon.config.model_dirs)
    models = await asyncio.to_thread(mark_loaded, disk.found, loaded)
    return messages.ModelList(models, tuple(disk.stores))


async def load(daemon: Daemon, exchange: Exchange, params: messages.ModelLoad) -> messages.LoadedModel:
    """Load a model before it is needed; after a cancel the load goes on for later requests."""
    given = Options(
        model=params.model, draft=params.draft, backend=params.backend, workspace=params.workspace
    )
    key = key_of(await merge_options(daemon, given))
    async with (
        exchange.wait_while_needed(
            "the request was cancelled; the model is still being loaded",
            "Unload it with `localspec models unload` if it is not needed.",
        ),
        daemon.pool.lease(key, exchange.model_progress, keep_alive_s=params.keep_alive_s) as lease,
    ):
        pass
    return describe_worker(daemon.pool, lease.worker, lease.pair)


async def tokenize(daemon: Daemon, exchange: Exchange, params: messages.Tokenize) -> messages.Tokenized:
    """Tokenize a text; loads the model if need be."""
    key = key_of(await merge_options(daemon, Options(model=params.model)))
    async with (
        exchange.wait_while_needed("the request was cancelled"),
        daemon.pool.lease(key, exchange.model_progress) as lease,
    ):
        job = lease.worker.begin(
            lambda id: TokenizeFrame(id, params.text, params.start, params.special, params.pieces)
        )
        found: TokenizedFrame = await job.result()
    return messages.Tokenized(found.tokens, found.pieces)


async def unload(daemon: Daemon, exchange: Exchange, params: messages.ModelUnload) -> messages.Unloaded:
    # A prefetch must not keep a model busy.
    await daemon.editors.clear()
    return messages.Unloaded(tuple(await daemon.pool.unload(params.model)))


def describe_worker(pool: Pool, worker: WorkerProcess, pair: Pair) -> messages.LoadedModel:
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
        drafts=tuple(messages.LoadedDraft(each.model, each.draft.place, each.users) for each in held),
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
