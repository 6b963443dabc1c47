"""Ollama's dialect: tags, ps, show, generate, chat and version; a line of JSON after the other, or one value.

Of <https://github.com/ollama/ollama/blob/main/docs/api.md>. ``num_ctx`` is taken and means nothing: how much
context a model has is said in localspec's own settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from localspec._version import __version__
from localspec.client import Client, Stream
from localspec.config import load_config
from localspec.errors import InvalidOptions, LocalspecError
from localspec.http.conversation import Said, conversation_of, message_of
from localspec.http.dialect import NDJSON, Dialect, sentence
from localspec.http.endpoint import Answer, Endpoint, Nothing, begun
from localspec.http.fields import Ours, length_of, refuse, statistics, text_of, uncut
from localspec.http.models import (
    configured_model,
    model_named,
    modified_s,
    named_models,
    names_of,
)
from localspec.http.sampling import Sampling, biased_options
from localspec.http.timings import answer_s, prompt_s
from localspec.models.fit import context_size
from localspec.models.sections import Sections
from localspec.protocol.messages import LoadedModel, ModelDescription, StreamDelta
from localspec.protocol.options import Options
from localspec.protocol.results import Result

PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
DURATION = re.compile(f"[+-]?(?:{PART.pattern})+", re.ASCII)
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S = 1_000_000_000
FOR_EVER = 0
"""seconds, as ``models/load`` understands them"""
SHORTEST_S = 1.0
"""so that a model is not let go between its load and the request that it is loaded for"""
NS = 1_000_000_000
TEMPLATE = "{{ .Prompt }}{{ .Suffix }}"
"""no template of ours, but what programs (Continue) look for to learn that gaps can be filled"""
API_LEVEL = "0.13.4"
"""the version of Ollama whose API this is; its clients compare it with what they want at least"""


class Given(Sampling, kw_only=True):
    """``options``"""

    num_predict: int | None = None
    localspec: Ours | None = None
    """here, too: there are clients that send nothing else of their own"""


class Asking(msgspec.Struct, kw_only=True):
    """What both ways to ask have."""

    model: str
    stream: bool | None = None
    options: Given | None = None
    keep_alive: str | float | None = None
    format: Any = None
    think: Any = None
    truncate: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    localspec: Ours | None = None


class GenerateBody(Asking, kw_only=True):
    """``POST /api/generate``"""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    template: str | None = None
    context: list[int] | None = None
    images: list[str] | None = None


class ChatBody(Asking, kw_only=True):
    """``POST /api/chat``"""

    messages: list[Said] | None = None
    tools: list[Any] | None = None


class ShowBody(msgspec.Struct):
    """``POST /api/show``"""

    model: str | None = None
    name: str | None = None


REFUSED: dict[str, tuple[Any, ...]] = {
    "format": ("",),
    "think": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
}
REFUSED_OF_TEXTS = REFUSED | {"template": ("",), "context": ([],), "images": ([],)}
REFUSED_OF_CHATS = REFUSED | {"tools": ([],)}

Word = Callable[[str], dict[str, Any]]
"""how a piece of text is said"""


async def version(client: Client, body: Nothing) -> Answer:
    """The level of Ollama's API, by which its clients know what they may ask, and our own version."""
    return {"version": API_LEVEL, "localspec": __version__}


async def tags(client: Client, body: Nothing) -> Answer:
    """The models that can be loaded."""
    return {"models": [_tag(name, model) for name, model in (await named_models(client)).items()]}


async def ps(client: Client, body: Nothing) -> Answer:
    """The models that are loaded, and until when they stay if nobody asks."""
    loaded, named = (await client.status()).models, names_of(await client.models())
    return {
        "models": [
            _tag(name, model) | _loaded(each, model.size)
            for each in loaded
            for name, model in named.items()
            if model.path == each.path
        ]
    }


async def there(client: Client, body: Nothing) -> Answer:
    """For who wants to know whether somebody listens."""
    return {"localspec": __version__}


async def show(client: Client, body: ShowBody) -> Answer:
    """What is known of a model."""
    model = await model_named(client, body.model or body.name or "")
    engine = await asyncio.to_thread(lambda: Sections(load_config()).engine(model.path))
    family = model.architecture or ""
    info = {"general.architecture": family, "general.parameter_count": model.parameters or 0}
    return {
        "license": "",
        "modelfile": f"FROM {model.path}\n",
        "details": _details(model),
        "model_info": {**info, f"{family}.context_length": model.context or 0},
        "parameters": f"num_ctx {context_size(model.context, engine)}",
        "template": TEMPLATE if model.fim else "{{ .Prompt }}",
        "capabilities": ["completion", *(["insert"] if model.fim else [])],
        "modified_at": _time(modified_s(model)),
    }


async def generate(client: Client, body: GenerateBody) -> Answer:
    """Answer a prompt, continue it (``raw``), or fill in what is missing before ``suffix``; without a prompt
    the model is loaded, or unloaded."""
    refuse(body, REFUSED_OF_TEXTS)
    began, prompt = time.monotonic(), body.prompt or ""
    word: Word = lambda text: {"response": text}  # noqa: E731
    if not (prompt or body.suffix):
        return await _kept(client, body, word)
    options = await _options(client, body)
    if body.suffix:
        done = await client.complete(prompt, body.suffix, trigger="invoked", options=options).result()
        said = _one(body, {**word(text_of(done)), **_end(done.result, began)})
        return said if body.stream is not False else await anext(said)
    if body.raw:
        stream = client.generate(prompt, raw=True, options=options)
    else:
        system = (message_of("system", body.system),) if body.system else ()
        stream = client.generate(messages=(*system, message_of("user", prompt)), options=options)
    return await _answer(body, stream, word, began)


async def chat(client: Client, body: ChatBody) -> Answer:
    """Answer a conversation; without messages the model is loaded, or unloaded."""
    refuse(body, REFUSED_OF_CHATS)
    began, conversation = time.monotonic(), body.messages or []
    word: Word = lambda text: {"message": {"role": "assistant", "content": text}}  # noqa: E731
    if not conversation:
        return await _kept(client, body, word)
    messages, prefilled = conversation_of(conversation)
    options = await _options(client, body)
    stream = client.generate(messages=messages, prefilled=prefilled, options=options)
    return await _answer(body, stream, word, began)


# How it is said.


async def _answer(body: Asking, stream: Stream[Result], word: Word, began: float) -> Answer:
    pieces = await begun(aiter(stream))
    if body.stream is not False:
        return _chunks(body, pieces, stream, word, began)
    text = "".join([piece.text async for piece in pieces])
    result = await stream.result()
    return {**_head(body), **word(text), **_end(result, began)}


async def _chunks(
    body: Asking, pieces: AsyncIterator[StreamDelta], stream: Stream[Result], word: Word, began: float
) -> AsyncIterator[Any]:
    async for piece in pieces:
        yield {**_head(body), **word(piece.text), "done": False}
    result = await stream.result()
    yield {**_head(body), **word(""), **_end(result, began)}


async def _one(body: Asking, said: dict[str, Any]) -> AsyncIterator[Any]:
    yield {**_head(body), **said}


def _head(body: Asking) -> dict[str, Any]:
    return {"model": body.model, "created_at": _now()}


def _end(result: Result, began: float) -> dict[str, Any]:
    """The last of an answer; what is neither the prompt's time nor the answer's went into loading the model,
    and waiting for it."""
    prompt, answer = prompt_s(uncut(result)), answer_s(result)
    whole_s = max(time.monotonic() - began, prompt + answer)
    return {
        "done": True,
        "done_reason": "stop" if result.finish_reason in ("stop", "stop_string") else "length",
        "total_duration": round(whole_s * NS),
        "load_duration": round((whole_s - prompt - answer) * NS),
        "prompt_eval_count": result.prompt_tokens,
        "prompt_eval_duration": round(prompt * NS),
        "eval_count": result.completion_tokens,
        "eval_duration": round(answer * NS),
        "localspec": statistics(result),
    }


def _loaded(model: LoadedModel, size: int) -> dict[str, Any]:
    left_s = LONGEST_S if model.idle_left_s is None else model.idle_left_s
    on_gpu = model.backend == "mlx" and sys.platform == "darwin"
    return {
        "size_vram": size if on_gpu else 0,
        "expires_at": _time(time.time() + left_s),
        "context_length": model.n_ctx,
    }


def _tag(name: str, model: ModelDescription) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": _time(modified_s(model)),
        "size": model.size,
        "digest": hashlib.sha256(model.id.encode()).hexdigest(),
        "details": _details(model),
    }


def _details(model: ModelDescription) -> dict[str, Any]:
    family = model.architecture or ""
    return {
        "parent_model": "",
        "format": model.format,
        "family": family,
        "families": [family],
        "parameter_size": _parameters(model.parameters),
        "quantization_level": model.quantisation or "",
    }


def _parameters(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _now() -> str:
    return _time(time.time())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


# What is meant.


async def _said(client: Client, body: Asking) -> Options:
    given = body.options or Given()
    overflow = "cut" if body.truncate else None
    others = {"model": body.model, "max_tokens": length_of(given.num_predict), "overflow": overflow}
    return await biased_options(client, given, others, (given.localspec or {}) | (body.localspec or {}))


async def _options(client: Client, body: Asking) -> Options:
    """The options; a model that is to be kept for some time is told so first."""
    options = await _said(client, body)
    if (keep_s := seconds_of(body.keep_alive)) is not None:
        # Told now, it holds for who hangs up, too.
        await _load(client, options, _idle_s(keep_s))
    return options


async def _kept(client: Client, body: Asking, word: Word) -> Answer:
    """Load the model, or unload it."""
    options, keep_s = await _said(client, body), seconds_of(body.keep_alive)
    if keep_s == 0:
        # This model alone: without a name it would be all of them.
        await client.unload(options.model or await asyncio.to_thread(configured_model))
    else:
        await _load(client, options, None if keep_s is None else _idle_s(keep_s))
    reason = "unload" if keep_s == 0 else "load"
    return {**_head(body), **word(""), "done": True, "done_reason": reason}


async def _load(client: Client, options: Options, keep_alive_s: float | None) -> None:
    """Have just the model that these options mean."""
    await client.load(
        options.model,
        draft=options.draft,
        backend=options.backend,
        workspace=options.workspace,
        keep_alive_s=keep_alive_s,
    ).result()


def _idle_s(keep_s: float) -> float:
    """How long it may idle, in the words of ``models/load``."""
    return FOR_EVER if keep_s < 0 else max(keep_s, SHORTEST_S)


def seconds_of(said: str | float | None) -> float | None:
    """How long: seconds, or as Go writes it (``5m``, ``1h30m``); less than 0 is for ever.

    Raises :class:`InvalidOptions`.
    """
    if said is None:
        return None
    if isinstance(said, str):
        with contextlib.suppress(ValueError):
            said = float(said)
    if isinstance(said, str):
        if DURATION.fullmatch(said) is None:
            raise InvalidOptions(f"keep_alive is no duration: {said[:60]!r}", "Write seconds, or 5m, or -1.")
        whole = sum(float(number) * SECONDS[unit] for number, unit in PART.findall(said))
        said = -whole if said.startswith("-") else whole
    if not -LONGEST_S <= said <= LONGEST_S:
        raise InvalidOptions("keep_alive is too long", "Write -1 for: until it is unloaded.")
    return said


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    """As its clients read it."""
    return {"error": sentence(error)}


DIALECT = Dialect(
    "ollama",
    (
        Endpoint("GET", "/", Nothing, there, open=True),
        Endpoint("GET", "/api/version", Nothing, version),
        Endpoint("GET", "/api/tags", Nothing, tags),
        Endpoint("GET", "/api/ps", Nothing, ps),
        Endpoint("POST", "/api/show", ShowBody, show),
        Endpoint("POST", "/api/generate", GenerateBody, generate),
        Endpoint("POST", "/api/chat", ChatBody, chat),
    ),
    error,
    NDJSON,
)
