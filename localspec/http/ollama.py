"""Ollama's dialect: tags, ps, show, generate, chat and version; lines of JSON, or one value.

Source: <https://github.com/ollama/ollama/blob/main/docs/api.md>. ``num_ctx`` is accepted and has no effect:
localspec's own settings set the size of a model's context.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from localspec._version import __version__
from localspec.client import Client, Stream
from localspec.errors import InvalidOptions, LocalspecError
from localspec.http import conversation, models, sampling
from localspec.http.answers import Pieces, answer_s, prompt_s, statistics, uncut
from localspec.http.conversation import Effort, Messages, Tools, budget_of, message_of, thinking_of
from localspec.http.dialect import NDJSON, Dialect, sentence
from localspec.http.endpoint import Answer, Endpoint, Refused, each
from localspec.http.models import is_at, model_named, modified_s, named_models, read_config
from localspec.http.sampling import ANY_OBJECT, Ours, Sampling, length_of, options_of
from localspec.models.descriptions import count
from localspec.models.library import Sections
from localspec.models.needs import context_size
from localspec.protocol.messages import LoadedModel, ModelDescription, NoParams, StreamDelta
from localspec.protocol.options import Options
from localspec.protocol.requests import Result, ToolCall

PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|$)", re.ASCII)
DURATION = re.compile(f"[+-]?(?:{PART.pattern})+", re.ASCII)
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600}
LONGEST_S = 1_000_000_000
LONGEST_DURATION = 100
"""characters"""
FOR_EVER = 0
"""the value of ``keep_alive_s`` in ``models/load`` for a model that stays loaded"""
SHORTEST_S = 1.0
"""seconds; keeps a model from being unloaded between its load and the request that follows"""
NS = 1_000_000_000
FINISHED = ("stop", "stop_string", "tool_calls")
TEMPLATE = "{{ .Prompt }}{{ .Suffix }}"
"""not a template that is used: programs (Continue) look for ``.Suffix`` to learn that gaps can be filled"""
API_LEVEL = "0.13.4"
"""the version of Ollama whose API this is; clients compare it with the least one they need"""


class ModelOptions(Sampling, kw_only=True):
    num_predict: int | None = None


class OllamaBody(msgspec.Struct, kw_only=True):
    model: str
    stream: bool | None = None
    options: ModelOptions | None = None
    keep_alive: str | float | None = None
    truncate: bool | None = None
    format: str | dict[str, Any] | None = None
    think: Effort = None
    localspec: Ours | None = None


class GenerateBody(OllamaBody, kw_only=True):
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None


class OllamaChatBody(OllamaBody, kw_only=True):
    messages: Messages | None = None
    tools: Tools | None = None


class ShowBody(msgspec.Struct):
    model: str | None = None
    name: str | None = None


REFUSED: Refused = {
    "options": {**sampling.REFUSED, **sampling.UNLIMITED},
    "logprobs": (False,),
    "top_logprobs": (0,),
}
REFUSED_OF_TEXTS: Refused = {**REFUSED, "template": ("",), "context": ([],), "images": ([],)}
REFUSED_OF_CHATS: Refused = {**REFUSED, "messages": conversation.REFUSED}

Shape = Callable[..., dict[str, Any]]
"""makes the fields of an answer that hold a piece of text, a piece of thought, and calls"""


def of_text(text: str, thinking: str = "", calls: tuple[ToolCall, ...] = ()) -> dict[str, Any]:
    """The shape of ``/api/generate``, which has no calls."""
    return {"response": text, **({"thinking": thinking} if thinking else {})}


def of_chat(text: str, thinking: str = "", calls: tuple[ToolCall, ...] = ()) -> dict[str, Any]:
    """The shape of ``/api/chat``, without a call that is cut: it would be read as one without arguments."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if whole := [call for call in calls if call.object is not None]:
        message["tool_calls"] = [
            {"id": call.id, "function": {"index": i, "name": call.name, "arguments": call.object}}
            for i, call in enumerate(whole)
        ]
    return {"message": message}


async def version(client: Client, body: NoParams) -> Answer:
    return {"version": API_LEVEL, "localspec": __version__}


async def tags(client: Client, body: NoParams) -> Answer:
    return {"models": [tag(name, model) for name, model in (await named_models(client)).items()]}


async def ps(client: Client, body: NoParams) -> Answer:
    loaded, named = (await client.status()).models, models.names_of(await client.models())
    return {
        "models": [
            tag(name, model) | _describe_loaded(each, model.size)
            for each in loaded
            for name, model in named.items()
            if is_at(model, each.path)
        ]
    }


async def root(client: None, body: NoParams) -> Answer:
    return {"localspec": __version__}


async def show(client: Client, body: ShowBody) -> Answer:
    model = await model_named(client, body.model or body.name or "")
    engine = await asyncio.to_thread(lambda: Sections(read_config()).engine(model.path))
    _, abilities = await asyncio.to_thread(models.read_texts, model.path)
    family = model.architecture or ""
    info = {"general.architecture": family, "general.parameter_count": model.parameters or 0}
    return {
        "license": "",
        "modelfile": f"FROM {model.path}\n",
        "details": _details(model),
        "model_info": {**info, f"{family}.context_length": model.context or 0},
        "parameters": f"num_ctx {context_size(model.context, engine)}",
        "template": TEMPLATE if model.fim else "{{ .Prompt }}",
        "capabilities": ["completion", *abilities, *(["insert"] if model.fim else [])],
        "modified_at": _time(modified_s(model)),
    }


async def generate(client: Client, body: GenerateBody) -> Answer:
    """Answer a prompt, or continue it (``raw``); without one load or unload the model."""
    began, prompt = time.monotonic(), body.prompt or ""
    if not (prompt or body.suffix):
        return await _load_or_unload(client, body, of_text)
    if body.suffix and body.format:
        raise InvalidOptions("format is not supported with suffix", "Leave one of them out.")
    options = await _options(client, body)
    if body.suffix:
        done = await client.complete(prompt, body.suffix, trigger="invoked", options=options).result()
        filled = done.items[0].text if done.items else ""
        answer = {**_head(body), **of_text(filled), **_end(done.result, began)}
        return answer if body.stream is False else each([answer])
    if body.raw:
        stream = client.generate(prompt, raw=True, options=options, progress=True)
    else:
        system = (message_of("system", body.system),) if body.system else ()
        turns = (*system, message_of("user", prompt))
        asked = conversation.chat_of((turns, False), thinking_of(body.think))
        stream = conversation.answer(client, asked, options, progress=True)
    return await _answer(body, stream, of_text, began)


async def chat(client: Client, body: OllamaChatBody) -> Answer:
    began = time.monotonic()
    if not body.messages:
        return await _load_or_unload(client, body, of_chat)
    turns = conversation.conversation_of(body.messages)
    asked = conversation.chat_of(turns, thinking_of(body.think), body.tools)
    stream = conversation.answer(client, asked, await _options(client, body), progress=True)
    return await _answer(body, stream, of_chat, began)


async def _answer(body: OllamaBody, stream: Stream[Result], shape: Shape, began: float) -> Answer:
    if body.stream is not False:
        return _chunks(body, await Pieces([stream]).begin(), shape, began)
    result = await stream.result()
    return {**_head(body), **shape(result.text, result.thinking, result.tool_calls), **_end(result, began)}


async def _chunks(body: OllamaBody, pieces: Pieces, shape: Shape, began: float) -> AsyncGenerator[Any]:
    async for piece in pieces:
        event = None if piece is None else piece.event
        if isinstance(event, Result):
            if event.tool_calls:
                yield {**_head(body), **shape("", "", event.tool_calls), "done": False}
            yield {**_head(body), **shape(""), **_end(event, began)}
        elif not isinstance(event, StreamDelta):  # an empty text is the sign of life
            yield {**_head(body), **shape(""), "done": False}
        elif event.channel != "call":  # calls come whole
            text, thinking = (event.text, "") if event.channel == "answer" else ("", event.text)
            yield {**_head(body), **shape(text, thinking), "done": False}


def _head(body: OllamaBody) -> dict[str, Any]:
    return {"model": body.model, "created_at": _time(time.time())}


def _end(result: Result, began: float) -> dict[str, Any]:
    """``load_duration`` is the time of loading and of waiting: all that neither prompt nor answer took."""
    prompt, answer = prompt_s(uncut(result)), answer_s(result, result.completion_tokens)
    whole_s = max(time.monotonic() - began, prompt + answer)
    return {
        "done": True,
        "done_reason": "stop" if result.finish_reason in FINISHED else "length",
        "total_duration": round(whole_s * NS),
        "load_duration": round((whole_s - prompt - answer) * NS),
        "prompt_eval_count": result.prompt_tokens,
        "prompt_eval_duration": round(prompt * NS),
        "eval_count": result.completion_tokens,
        "eval_duration": round(answer * NS),
        "localspec": statistics(result),
    }


def _describe_loaded(model: LoadedModel, size: int) -> dict[str, Any]:
    left_s = LONGEST_S if model.idle_left_s is None else model.idle_left_s
    return {
        "size_vram": min(size, model.offloaded_bytes),
        "expires_at": _time(time.time() + left_s),
        "context_length": model.n_ctx,
    }


def tag(name: str, model: ModelDescription) -> dict[str, Any]:
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
        "parameter_size": count(model.parameters).replace(" ", "") if model.parameters else "",
        "quantization_level": model.quantisation or "",
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _make_options(body: OllamaBody) -> Options:
    given = body.options or ModelOptions()
    given.localspec = (given.localspec or {}) | (body.localspec or {})
    overflow = "cut" if body.truncate else None
    others: Ours = {"model": body.model, "max_tokens": length_of(given.num_predict), "overflow": overflow}
    others |= {"schema": schema_of(body.format), "think": budget_of(body.think)}
    return options_of(given, **others)


def schema_of(format: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the JSON schema that a ``format`` stands for. Raises :class:`InvalidOptions`."""
    if format in ("json", "", None):
        return ANY_OBJECT if format == "json" else None
    if isinstance(format, str):
        raise InvalidOptions(f"format is {format[:60]!r}", "Give json, or a JSON schema.")
    return format


async def _options(client: Client, body: OllamaBody) -> Options:
    """Return the options; with ``keep_alive``, load the model first, for that time."""
    options = _make_options(body)
    if (keep_s := seconds_of(body.keep_alive)) is not None:
        # Set before the answer, so that it also holds if the client disconnects.
        await _load(client, options, keep_s)
    return options


async def _load_or_unload(client: Client, body: OllamaBody, shape: Shape) -> Answer:
    options, keep_s = _make_options(body), seconds_of(body.keep_alive)
    if keep_s == 0:
        # With the name of this model: without one all models would be unloaded.
        await client.unload(options.model or await asyncio.to_thread(models.configured_model))
    else:
        await _load(client, options, keep_s)
    reason = "unload" if keep_s == 0 else "load"
    return {**_head(body), **shape(""), "done": True, "done_reason": reason}


async def _load(client: Client, options: Options, keep_s: float | None) -> None:
    if keep_s is not None:
        keep_s = FOR_EVER if keep_s < 0 else max(keep_s, SHORTEST_S)
    await client.load(options, keep_alive_s=keep_s).result()


def seconds_of(given: str | float | None) -> float | None:
    """Return a duration in seconds, from seconds or Go's notation (``5m``, ``1h30m``); negative is for ever.
    Raises :class:`InvalidOptions`."""
    shown = str(given)[:60]
    if isinstance(given, str):
        is_known = len(given) <= LONGEST_DURATION and DURATION.fullmatch(given)
        parts = PART.findall(given) if is_known else [("inf", "")]
        whole = sum(float(number) * SECONDS[unit] for number, unit in parts)
        given = -whole if given.startswith("-") else whole
    if given is not None and abs(given) > LONGEST_S:
        message = f"keep_alive is not a duration of at most {LONGEST_S} seconds: {shown!r}"
        raise InvalidOptions(message, "Give seconds, a duration such as 5m, or -1 to keep the model loaded.")
    return given


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    return {"error": sentence(error)}


DIALECT = Dialect(
    "ollama",
    (
        Endpoint("GET", "/", NoParams, root, open=True),
        Endpoint("GET", "/api/version", NoParams, version),
        Endpoint("GET", "/api/tags", NoParams, tags),
        Endpoint("GET", "/api/ps", NoParams, ps),
        Endpoint("POST", "/api/show", ShowBody, show),
        Endpoint("POST", "/api/generate", GenerateBody, generate, REFUSED_OF_TEXTS),
        Endpoint("POST", "/api/chat", OllamaChatBody, chat, REFUSED_OF_CHATS),
    ),
    error,
    NDJSON,
)
