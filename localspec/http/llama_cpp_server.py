"""llama.cpp's server about itself: ``/health``, ``/props``, ``/slots`` and ``/metrics`` in its names."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from localspec._version import __version__
from localspec.client import Client
from localspec.errors import LocalspecError
from localspec.http.endpoint import Answer, Nothing, Plain
from localspec.http.generation import generation_settings
from localspec.http.models import DEFAULT_MODEL, configured, named_models
from localspec.models.fit import context_size
from localspec.models.gguf import read_header

BUILD = f"localspec {__version__}"
METRICS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("prompt_tokens_total", "counter", "Prompt tokens that were read.", ('tokens_total{kind="prompt"}',)),
    ("prompt_tokens_cached_total", "counter", "Prompt tokens taken over.", ('tokens_total{kind="cached"}',)),
    ("tokens_predicted_total", "counter", "Tokens generated.", ('tokens_total{kind="completion"}',)),
    ("n_decode_total", "counter", "Rounds of decoding.", ("rounds_total{",)),
    ("spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", ("drafted_tokens_total{",)),
    ("spec_decode_num_accepted_tokens_total", "counter", "Drafts accepted.", ("accepted_tokens_total{",)),
)
"""name, kind, meaning, and the beginnings of the names of our totals that are summed"""


async def health(client: Client, body: Nothing) -> Answer:
    """The status of the daemon: ok, if it can be reached at all."""
    return {"status": "ok"}


async def props(client: Client, body: Nothing) -> Answer:
    """The properties of the configured model, which is loaded if it is not."""
    loaded = await client.load().result()
    template = await asyncio.to_thread(_template, loaded.path)
    return {
        "default_generation_settings": {
            "n_ctx": loaded.n_ctx,
            "model": loaded.model,
            "params": generation_settings(),
        },
        "total_slots": _sequences(),
        "model_path": loaded.path,
        "model_alias": loaded.model,
        "chat_template": template,
        "modalities": {"vision": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "is_sleeping": False,
        "build_info": BUILD,
    }


async def slots(client: Client, body: Nothing) -> Answer:
    """The sequences of the model that is configured, and how many are at work; a question loads no model."""
    own, status = (await named_models(client)).get(DEFAULT_MODEL), await client.status()
    loaded = next((each for each in status.models if own is not None and each.path == own.path), None)
    running = 0 if loaded is None else loaded.running
    engine = configured().engine
    n_ctx = context_size(own.context if own is not None else None, engine) if loaded is None else loaded.n_ctx
    return [
        {
            "id": i,
            "n_ctx": n_ctx,
            "speculative": loaded is not None and loaded.draft is not None,
            "is_processing": i < running,
        }
        for i in range(max(_sequences(), running))
    ]


async def metrics(client: Client, body: Nothing) -> Answer:
    """Totals since the daemon started, as Prometheus reads them, in llama.cpp's names."""
    status, totals = await client.status(), (await client.metrics()).totals
    lines: list[str] = []

    def tell(name: str, kind: str, meaning: str, value: float) -> None:
        full = f"llamacpp:{name}"
        lines.extend((f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {value:.15g}"))

    for name, kind, meaning, beginnings in METRICS:
        found = (v for key, v in totals.items() if key.removeprefix("localspec_").startswith(beginnings))
        value = sum(found)
        if name == "prompt_tokens_total":
            value -= totals.get('localspec_tokens_total{kind="cached"}', 0.0)
        tell(name, kind, meaning, value)
    running = sum(model.running for model in status.models)
    tell("requests_processing", "gauge", "Requests at work.", running)
    tell("requests_deferred", "gauge", "Requests that wait.", max(0, status.running - running))
    started = str(int(time.time() - status.uptime_s))
    text = "\n".join(lines) + "\n"
    return Plain(text, "text/plain; version=0.0.4", {"Process-Start-Time-Unix": started})


def _sequences() -> int:
    """Return the configured number of concurrent sequences; 1, the least, where free memory decides it."""
    return configured().engine.parallel or 1


def _template(path: str) -> str:
    """The model's own chat template; empty if its file has none that can be read here."""
    try:
        found = read_header(Path(path), texts=False).metadata.get("tokenizer.chat_template")
    except (LocalspecError, OSError):
        return ""
    return found if isinstance(found, str) else ""
