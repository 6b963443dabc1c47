"""OpenAI's dialect: models, chat completions and completions, whole or as server-sent events.

Of <https://platform.openai.com/docs/api-reference>. What it has no field for is said in ``localspec``, with
the names of our options; the statistics of an answer come back under the same name. What llama.cpp's server
takes besides is taken, too: its clients chat in this dialect.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from http import HTTPStatus
from itertools import accumulate
from typing import Any, Literal

import msgspec

from localspec.client import Client, Stream
from localspec.errors import InvalidOptions, LocalspecError
from localspec.http.dialect import SSE, Dialect, context_numbers, sentence
from localspec.http.endpoint import Answer, Endpoint, Nothing, begun, each
from localspec.http.fields import Ours, length_of, refuse, statistics, text_of, uncut
from localspec.http.models import DEFAULT_MODEL, model_named, modified_s, named_models
from localspec.http.sampling import TimedSampling, options_of
from localspec.protocol.messages import ModelDescription, StreamDelta
from localspec.protocol.options import Options
from localspec.protocol.requests import Message
from localspec.protocol.results import FinishReason, Result, Token

ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}
FINISH: dict[FinishReason, str] = {"length": "length", "context_full": "length", "deadline": "length"}
"""all others are ``stop``"""
MODELS = "/v1/models/"
TEXTS = ("text", "input_text")
"""the types of parts that are taken"""
CODES = {"context_exceeded": "context_length_exceeded", "unauthorized": "invalid_api_key"}
CODES |= dict.fromkeys(("queue_full", "engine_busy"), "rate_limit_exceeded")
"""of errors that have a name there"""


class Part(msgspec.Struct):
    type: str
    text: str | None = None


class Said(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class ModelName(msgspec.Struct):
    """Which model."""

    id: str


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Asking(TimedSampling, kw_only=True):
    """What both ways to ask have."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    n: int | None = None
    localspec: Ours | None = None


class ChatBody(Asking, kw_only=True):
    """``POST /v1/chat/completions``"""

    messages: list[Said]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None


class TextBody(Asking, kw_only=True):
    """``POST /v1/completions``"""

    prompt: str | list[str]
    suffix: str | None = None
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = None


REFUSED: dict[str, tuple[Any, ...]] = {"n": (1,)}
REFUSED_OF_CHATS = REFUSED | {
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "reasoning_effort": ("none",),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
REFUSED_IN_MESSAGES: dict[str, tuple[Any, ...]] = {"tool_calls": ([],), "function_call": ()}
REFUSED_OF_TEXTS = REFUSED | {"best_of": (1,), "logprobs": (0, 1)}


async def models(client: Client, body: Nothing) -> Answer:
    """Those that can be loaded, by the names that can be given."""
    named = await named_models(client)
    return {"object": "list", "data": [_card(name, each) for name, each in named.items()]}


async def model(client: Client, body: ModelName) -> Answer:
    """One of them, by any name that it goes by."""
    return _card(body.id, await model_named(client, body.id))


def _card(name: str, model: ModelDescription) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(modified_s(model)), "owned_by": "localspec"}


async def chat(client: Client, body: ChatBody) -> Answer:
    """Answer a conversation."""
    refuse(body, REFUSED_OF_CHATS)
    longest = length_of(body.n_predict, body.max_completion_tokens, body.max_tokens)
    options = _options(body, longest, logprobs=bool(body.logprobs))
    for said in body.messages:
        refuse(said, REFUSED_IN_MESSAGES)
    messages = tuple(message_of(said.role, _text(said.content)) for said in body.messages)
    stream = client.generate(messages=messages, options=options, **body.deadlines())
    envelope = _envelope("chatcmpl", "chat.completion", options)
    if body.stream:
        chunk = envelope | {"object": "chat.completion.chunk"} | _no_usage(body)
        return _chat_chunks(chunk, body, await begun(stream), stream)
    tokens, result = await _whole(stream)
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": result.text}}
    choice["logprobs"] = {"content": [*_logprobs(result.text, tokens)]} if body.logprobs else None
    return _end(envelope, choice, result)


async def text(client: Client, body: TextBody) -> Answer:
    """Continue a text, or fill in what is missing before ``suffix``."""
    refuse(body, REFUSED_OF_TEXTS)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise InvalidOptions(f"one prompt is taken, not {len(prompts)}", "Send a request for each.")
    if body.logprobs is not None and (body.suffix or body.echo):
        raise InvalidOptions("logprobs is not supported with suffix or echo", "Leave logprobs out.")
    longest = length_of(body.n_predict, body.max_tokens)
    options = _options(body, longest, logprobs=body.logprobs is not None)
    envelope = _envelope("cmpl", "text_completion", options)
    before = prompts[0] if body.echo else ""
    if body.suffix:
        asked = client.complete(
            prompts[0], body.suffix, trigger="invoked", options=options, **body.deadlines()
        )
        filled = await asked.result()
        choice = {"index": 0, "text": before + text_of(filled), "logprobs": None}
        if body.stream:  # it is known only once it is whole
            return each(_last(envelope | _no_usage(body), choice, body, filled.result))
        return _end(envelope, choice, filled.result)
    stream = client.generate(prompts[0], raw=True, options=options, **body.deadlines())
    if body.stream:
        return _text_chunks(envelope | _no_usage(body), body, before, await begun(stream), stream)
    tokens, result = await _whole(stream)
    choice = {"index": 0, "text": before + result.text}
    choice["logprobs"] = None if body.logprobs is None else _columns(result.text, tokens, 0)
    return _end(envelope, choice, result)


def message_of(role: str, content: str) -> Message:
    """A message in our words; raises :class:`InvalidOptions`."""
    if role not in ROLES:
        raise InvalidOptions(f"there is no role named {role[:60]!r}", f"Roles are {', '.join(ROLES)}.")
    return Message(ROLES[role], content)


def _text(content: str | list[Part] | None) -> str:
    if isinstance(content, list):
        for part in content:
            if part.text is None or part.type not in TEXTS:
                raise InvalidOptions(
                    f"content of the type {part.type[:60]!r} is not taken", "Send texts alone."
                )
        return "".join(part.text or "" for part in content)
    return content or ""


def _options(body: Asking, max_tokens: int | None, *, logprobs: bool) -> Options:
    others = {"model": body.model, "max_tokens": max_tokens, "logprobs": logprobs or None}
    return options_of(body, others, body.localspec)


async def _whole(stream: Stream[Result]) -> tuple[list[Token], Result]:
    tokens = [token async for delta in stream for token in delta.tokens]
    return tokens, await stream.result()


# What is answered.


def _envelope(prefix: str, kind: str, options: Options) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": options.model or DEFAULT_MODEL,
    }


def _end(envelope: dict[str, Any], choice: dict[str, Any], result: Result) -> dict[str, Any]:
    choice["finish_reason"] = FINISH.get(uncut(result).finish_reason, "stop")
    return {
        **envelope,
        "choices": [choice],
        "usage": _usage(result),
        "localspec": statistics(result),
    }


def _usage(result: Result) -> dict[str, Any]:
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": result.prompt_tokens + result.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": result.cached_tokens},
    }


async def _chat_chunks(
    envelope: dict[str, Any], body: ChatBody, pieces: AsyncIterator[StreamDelta], stream: Stream[Result]
) -> AsyncIterator[Any]:
    def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}

    yield chunk({"role": "assistant", "content": ""})
    async for piece in pieces:
        more = {"logprobs": {"content": [*_logprobs(piece.text, piece.tokens)]}} if body.logprobs else {}
        yield chunk({"content": piece.text}, **more)
    for last in _last(envelope, {"index": 0, "delta": {}}, body, await stream.result()):
        yield last


async def _text_chunks(
    envelope: dict[str, Any],
    body: TextBody,
    before: str,
    pieces: AsyncIterator[StreamDelta],
    stream: Stream[Result],
) -> AsyncIterator[Any]:
    def chunk(text: str, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
        return {
            **envelope,
            "choices": [{"index": 0, "text": text, "logprobs": logprobs, "finish_reason": None}],
        }

    offset = 0
    if before:
        yield chunk(before)
    async for piece in pieces:
        columns = None if body.logprobs is None else _columns(piece.text, piece.tokens, offset)
        offset += len(piece.text)
        yield chunk(piece.text, columns)
    for last in _last(envelope, {"index": 0, "text": "", "logprobs": None}, body, await stream.result()):
        yield last


def _last(
    envelope: dict[str, Any], choice: dict[str, Any], body: Asking, result: Result
) -> list[dict[str, Any]]:
    """The end of a stream; who wants its usage gets that in a chunk of its own."""
    end = _end(envelope, choice, result)
    usage = end.pop("usage")
    none = _no_usage(body)
    return [end | none, {**envelope, "choices": [], "usage": usage}] if none else [end]


def _no_usage(body: Asking) -> dict[str, None]:
    """What all chunks but the last say to who wants it."""
    is_wanted = body.stream_options is not None and body.stream_options.include_usage
    return {"usage": None} if is_wanted else {}


def _logprobs(text: str, tokens: Iterable[Token]) -> Iterator[dict[str, Any]]:
    at = 0
    for token in tokens:
        piece = text[at : at + token.chars]
        at += token.chars
        yield {"token": piece, "logprob": token.logprob, "bytes": list(piece.encode()), "top_logprobs": []}


def _columns(text: str, tokens: Iterable[Token], offset: int) -> dict[str, Any]:
    each = list(_logprobs(text, tokens))
    starts = accumulate((len(one["token"]) for one in each[:-1]), initial=offset)
    return {
        "tokens": [one["token"] for one in each],
        "token_logprobs": [one["logprob"] for one in each],
        "top_logprobs": None,
        "text_offset": list(starts) if each else [],
    }


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    """As its clients read it."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    else:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    code = CODES.get(error.code, error.code)
    told = {"message": sentence(error), "type": kind, "param": None, "code": code}
    return {"error": told | context_numbers(error)}


DIALECT = Dialect(
    "openai",
    (
        Endpoint("GET", "/v1/models", Nothing, models),
        Endpoint("GET", f"{MODELS}{{id:path}}", ModelName, model),
        Endpoint("POST", "/v1/chat/completions", ChatBody, chat),
        Endpoint("POST", "/v1/completions", TextBody, text),
    ),
    error,
    SSE,
)
