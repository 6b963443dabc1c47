"""The state of the server in llama.cpp's format: ``/health``, ``/props``, ``/slots`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from localspec._version import __version__
from localspec.client import Client
from localspec.errors import LocalspecError
from localspec.http import openai
from localspec.http.endpoint import Answer, Nothing, Plain
from localspec.http.models import DEFAULT_MODEL, configured, is_at, named_models
from localspec.http.ollama import tag
from localspec.http.sampling import OFF
from localspec.models.fit import context_size
from localspec.protocol.messages import LoadedModel
from localspec.protocol.options import Options
from localspec.protocol.proposer_kinds import KINDS

CAPS = {
    "supports_string_content": True,
    "supports_typed_content": False,
    "supports_tools": False,
    "supports_tool_calls": False,
    "supports_parallel_tool_calls": False,
    "supports_preserve_reasoning": False,
    "supports_reasoning_effort": False,
    "supports_object_arguments": False,
}
"""``chat_template_caps``: what chats can use here, whatever the template could"""
LISTED = {"type": "model", "description": "", "tags": [], "capabilities": ["completion"], "parameters": ""}
"""the further fields of an entry of ``models``"""
BUILD = f"localspec {__version__}"
DRAFTING = tuple(f'rounds_total{{choice="{name}"' for name in (kind.name for kind in KINDS))
METRICS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("prompt_tokens_total", "Prompt tokens that were prefilled.", ('tokens_total{kind="prompt"}',)),
    ("prompt_tokens_cached_total", "Prompt tokens reused.", ('tokens_total{kind="cached"}',)),
    ("prompt_seconds_total", "Seconds until the first tokens of answers.", ("prompt_seconds_total",)),
    ("tokens_predicted_total", "Tokens generated.", ('tokens_total{kind="completion"}',)),
    ("tokens_predicted_seconds_total", "Seconds from first to last tokens.", ("decode_seconds_total",)),
    ("n_decode_total", "Rounds of decoding; one of several requests counts for each.", ("rounds_total{",)),
    ("n_tokens_max", "Most tokens of a prompt and its answer.", ("longest_tokens",)),
    ("spec_decode_num_draft_tokens_total", "Tokens drafted.", ("drafted_tokens_total{",)),
    ("spec_decode_num_accepted_tokens_total", "Drafts accepted.", ("accepted_tokens_total{",)),
    ("spec_decode_num_drafts_total", "Rounds that verified a draft.", DRAFTING),
)
"""counters by name: the meaning, and the prefixes of the names of the daemon's totals that are summed"""

NO_OPTIONS = Options()
RANDOM_SEED = 2**32 - 1
"""stands for a random seed"""
DEFAULTS: dict[str, Any] = {
    "temperature": 0.7,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "repeat_last_n": -1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "max_tokens": -1,
    "seed": RANDOM_SEED,
    "stop": (),
}
"""values of options that neither the request nor the configuration sets; a model may have its own"""


async def health(client: None, body: Nothing) -> Answer:
    """Return the status of the server: ok."""
    return {"status": "ok"}


async def props(client: Client, body: Nothing) -> Answer:
    """Load the configured model if it is not loaded, and return its properties."""
    loaded = await client.load().result()
    texts = await asyncio.to_thread(_texts, loaded.path)
    return {
        "default_generation_settings": {
            "n_ctx": loaded.n_ctx,
            "model": loaded.model,
            "params": generation_settings(),
        },
        "total_slots": _sequences(loaded),
        "model_path": loaded.path,
        "model_alias": loaded.model,
        **texts,
        "chat_template_caps": CAPS,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "is_sleeping": False,
        "build_info": BUILD,
    }


async def models(client: Client, body: Nothing) -> Answer:
    """The models that can be loaded, as OpenAI's API lists them and as Ollama's does."""
    named = await named_models(client)
    listed = [tag(name, model) | LISTED for name, model in named.items()]
    return {"models": listed, **await openai.models(client, body)}


async def slots(client: Client, body: Nothing) -> Answer:
    """Return the sequences of the configured model and how many are busy; loads no model."""
    own, status = (await named_models(client)).get(DEFAULT_MODEL), await client.status()
    loaded = next((each for each in status.models if own is not None and is_at(own, each.path)), None)
    running = 0 if loaded is None else loaded.running
    engine = configured().engine
    n_ctx = context_size(own.context if own is not None else None, engine) if loaded is None else loaded.n_ctx
    return [
        {
            "id": i,
            "n_ctx": n_ctx,
            "speculative": loaded is not None and bool(loaded.drafts),
            "is_processing": i < running,
        }
        for i in range(max(_sequences(loaded), running))
    ]


async def metrics(client: Client, body: Nothing) -> Answer:
    """Return the totals since the daemon started in Prometheus' format, by llama.cpp's names."""
    status, totals = await client.status(), (await client.metrics()).totals
    lines: list[str] = []

    def total(*beginnings: str) -> float:
        found = (v for key, v in totals.items() if key.removeprefix("localspec_").startswith(beginnings))
        return sum(found)

    def add(name: str, kind: str, meaning: str, value: float) -> None:
        full = f"llamacpp:{name}"
        lines.extend((f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {value:.15g}"))

    counted = {name: total(*beginnings) for name, _, beginnings in METRICS}
    counted["prompt_tokens_total"] -= counted["prompt_tokens_cached_total"]
    for name, meaning, _ in METRICS:
        add(name, "counter", meaning, counted[name])
    reading = _rate(total("timed_prompt_tokens_total"), counted["prompt_seconds_total"])
    add("prompt_tokens_seconds", "gauge", "Prompt tokens a second, since the daemon started.", reading)
    decoding = _rate(total("timed_tokens_total"), counted["tokens_predicted_seconds_total"])
    add("predicted_tokens_seconds", "gauge", "Tokens a second, since the daemon started.", decoding)
    running = sum(model.running for model in status.models)
    add("requests_processing", "gauge", "Requests that run.", running)
    add("requests_deferred", "gauge", "Requests that wait.", max(0, status.running - running))
    started = str(int(time.time() - status.uptime_s))
    text = "\n".join(lines) + "\n"
    return Plain(text, "text/plain; version=0.0.4", {"Process-Start-Time-Unix": started})


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def _sequences(loaded: LoadedModel | None) -> int:
    """Return the number of sequences at once; of a model that is not loaded the configured one, or 1."""
    known = 0 if loaded is None else loaded.sequences
    return known or configured().engine.parallel or 1


def _texts(path: str) -> dict[str, str]:
    """Return the model's special texts; empty ones if its files cannot be read."""
    from localspec.models.template import texts_of  # imports jinja2

    try:
        return texts_of(Path(path))
    except (LocalspecError, OSError):
        return dict.fromkeys(("model_ftype", "bos_token", "eos_token", "chat_template"), "")


def generation_settings(
    options: Options = NO_OPTIONS,
    *,
    samplers: tuple[str, ...] = tuple(OFF),
    fills: bool = False,
) -> Any:
    """Return llama.cpp's ``generation_settings`` for ``options``, completed by the configuration's.

    ``samplers``: those that are at work, in their order; ``fills``: a gap is filled in, at temperature 0
    unless one is set.
    """
    merged = options.over(configured().options)
    if fills and merged.temperature is None:
        merged = replace(merged, temperature=0.0)
    given = {name: getattr(merged, name) for name in DEFAULTS}
    values = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    bias = [{"token": token, "bias": added} for token, added in merged.logit_bias or ()]
    return {
        **values,
        "n_predict": values["max_tokens"],
        "logit_bias": bias,
        "samplers": samplers,
        "speculative.types": merged.proposer or "auto",
    }
