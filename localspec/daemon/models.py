"""The models: which there are, and which are loaded."""

from __future__ import annotations

import asyncio

import psutil
from msgspec.structs import replace

from localspec.daemon.exchange import Exchange
from localspec.daemon.worker import WorkerProcess
from localspec.models.catalogue import list_models
from localspec.protocol import messages
from localspec.protocol.frames import Ready


async def list_all(exchange: Exchange, params: messages.Nothing) -> messages.ModelList:
    daemon = exchange.daemon
    found = await asyncio.to_thread(list_models, daemon.config.model_dirs)
    loaded = {
        (name, ready.backend)
        for worker, ready in daemon.pool.loaded()
        for name in (worker.key.model, ready.model)
    }
    return messages.ModelList(tuple(replace(model, loaded=_is_among(loaded, model)) for model in found))


def _is_among(loaded: set[tuple[str, str]], model: messages.ModelDescription) -> bool:
    """Whether a model is loaded, by its name or path, on the backend of its format: an id may have two."""
    return any((name, model.backend) in loaded for name in (model.id, model.path))


def described(worker: WorkerProcess, ready: Ready) -> messages.LoadedModel:
    resident = None if worker.pid is None else resident_bytes(worker.pid)
    return messages.LoadedModel(
        ready.model, ready.draft, worker.pid or 0, resident, worker.users, ready.backend
    )


def resident_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
