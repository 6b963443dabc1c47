"""OpenAI's dialect: models, chat completions and completions, whole or as server-sent events.

Source: <https://platform.openai.com/docs/api-reference>. The field ``localspec`` of a request takes further
options by our names; the one of an answer holds its statistics. Additional fields of llama.cpp's server and
of vLLM are accepted: their clients chat in this dialect.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from localspec._version import __version__
from localspec.client import Client
from localspec.errors import InvalidOptions, LocalspecError
from localspec.http import answers, conversation, prompts, sampling
from localspec.http.answers import Pieces, statistics, timings, uncut
from localspec.http.conversation import Messages, ToolChoiceBody, Tools
from localspec.http.dialect import SSE, Dialect, context_numbers, sentence
from localspec.http.endpoint import Answer, Endpoint, PathId, Refused, each
from localspec.http.models import DEFAULT_MODEL, model_named, modified_s, named_models, read_config
from localspec.http.sampling import TimedSampling, count_of, options_of
from localspec.models.library import Sections
from localspec.models.needs import context_size
from localspec.protocol.messages import ModelDescription, NoParams, StreamDelta, StreamProgress
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, FinishReason, Result, Token

FINISH: dict[FinishReason, str] = {"length": "length", "context_full": "length", "deadline": "length"}
FINISH["tool_calls"] = "tool_calls"
"""all others are ``stop``"""
MOST_FILLED = 8
FILL_TEMPERATURE = 1.0
"""the dialect's default for a gap: several requests are to give several texts"""
CODES = {"context_exceeded": "context_length_exceeded", "unauthorized": "invalid_api_key"}
CODES |= dict.fromkeys(("queue_full", "engine_busy"), "rate_limit_exceeded")


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class OpenaiBody(TimedSampling, kw_only=True):
    stream_options: StreamOptions | None = None


class OpenaiChatBody(OpenaiBody, kw_only=True):
    messages: Messages
    tools: Tools | None = None
    tool_choice: str | ToolChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_budget: int | None = None
    reasoning_budget_tokens: int | None = None
    thinking_budget_tokens: int | None = None
    thinking_token_budget: int | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class TextBody(OpenaiBody, kw_only=True):
    prompt: prompts.Prompt
    suffix: str | None = None
    logprobs: int | None = None


REFUSED: Refused = {**sampling.REFUSED, "n_indent": (0,), "best_of": (1,), "echo": (False,)}
REFUSED_OF_TEXTS: Refused = {**REFUSED, "add_special_tokens": (True,), "prompt_embeds": ()}
BUDGETS = ("reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget")
"""llama.cpp's and vLLM's names of the limit of thoughts"""
REFUSED_OF_CHATS: Refused = {
    **{name: harmless for name, harmless in REFUSED.items() if name not in BUDGETS},
    **dict.fromkeys(("functions", "documents"), ([],)),
    "function_call": ("none", "auto"),
    **dict.fromkeys(("chat_template", "web_search_options"), ()),
    "messages": conversation.REFUSED,
    "modalities": (["text"],),
    "add_special_tokens": (False,),
}


async def models(client: Client, body: NoParams) -> Answer:
    return {"object": "list", "data": await _cards(await named_models(client))}


async def model(client: Client, body: PathId) -> Answer:
    (card,) = await _cards({body.id: await model_named(client, body.id)})
    return card


async def _cards(named: dict[str, ModelDescription]) -> list[Any]:
    sections = Sections(read_config())
    return await asyncio.to_thread(lambda: [_card(name, each, sections) for name, each in named.items()])


def _card(name: str, model: ModelDescription, sections: Sections) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(modified_s(model)),
        "owned_by": "localspec",
        "meta": {
            "n_ctx": context_size(model.context, sections.engine(model.path)),
            "n_ctx_train": model.context,
            "n_params": model.parameters,
            "size": model.size,
            "ftype": model.quantisation,
        },
    }


async def chat(client: Client, body: OpenaiChatBody) -> Answer:
    """Answer a conversation, or continue an answer that is its last message."""
    if body.top_logprobs and not body.logprobs:
        raise InvalidOptions("top_logprobs needs logprobs", "Set logprobs to true, or drop top_logprobs.")
    top = body.top_logprobs if body.logprobs else None
    rated: dict[str, Any] = {"logprobs": body.logprobs or None, "top_logprobs": top}
    budgets = (getattr(body, name) for name in BUDGETS)
    options = options_of(body, **rated, think=conversation.budget_of(body.reasoning_effort, *budgets))
    asked, how = chat_by(body), body.generating()
    streams = [
        conversation.answer(client, asked, each, **how)
        for each in prompts.vary_seeds(options, count_of(body.n, prompts.MOST, "n"))
    ]
    envelope = _envelope("chatcmpl", "chat.completion", options)

    def entries(text: str, tokens: Iterable[Token]) -> dict[str, Any] | None:
        return {"content": [*answers.entries(text, tokens)]} if body.logprobs else None

    if body.stream:
        begin: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": None}} for _ in streams]

        called: set[tuple[int, int]] = set()

        def shape(index: int, piece: StreamDelta) -> dict[str, Any]:
            is_rated = body.logprobs and piece.channel == "answer"
            rates = {"logprobs": entries(piece.text, piece.tokens)} if is_rated else {}
            return {"delta": delta_of(piece, index, called), **rates}

        envelope |= {"object": "chat.completion.chunk"}
        return _chunks(envelope, body, begin, await Pieces(streams, body).begin(), shape, {"delta": {}})
    found = await answers.whole(streams)
    choices = [{"message": turn_of(end), "logprobs": entries(end.text, tokens)} for tokens, end in found]
    return _end(envelope, choices, [result for _, result in found], len(found))


async def count_tokens(client: Client, body: OpenaiChatBody) -> Answer:
    return await conversation.count_chat_tokens(client, chat_by(body), body.model)


def chat_by(body: OpenaiChatBody) -> ChatPrompt:
    """Return the chat that a body asks for. Raises :class:`InvalidOptions`."""
    continues = body.continue_final_message
    if continues is None and body.add_generation_prompt:
        continues = False  # the prompt for an answer begins a new turn
    turns = conversation.conversation_of(body.messages, continues=continues)
    variables = conversation.thinking_of(body.reasoning_effort) | (body.chat_template_kwargs or {})
    return conversation.chat_of(turns, variables, body.tools, body.tool_choice, body.parallel_tool_calls)


def delta_of(piece: StreamDelta, number: int, called: set[tuple[int, int]]) -> dict[str, Any]:
    """Return the ``delta`` of a piece; ``called`` are the calls that have begun, by answer and position."""
    if piece.call is None:
        return {"reasoning_content" if piece.channel == "thinking" else "content": piece.text}
    call, key = piece.call, (number, piece.call.index)
    head, name = ({}, {}) if key in called else ({"id": call.id, "type": "function"}, {"name": call.name})
    called.add(key)
    return {"tool_calls": [{"index": call.index, **head, "function": {**name, "arguments": piece.text}}]}


def turn_of(result: Result) -> dict[str, Any]:
    """Return the message of a complete answer; its content is null if it is nothing but calls."""
    message: dict[str, Any] = {"role": "assistant", "content": result.text}
    if result.thinking:
        message["reasoning_content"] = result.thinking
    if result.tool_calls:
        message["content"] = result.text or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in result.tool_calls
        ]
    return message


async def text(client: Client, body: TextBody) -> Answer:
    if body.suffix and any(body.limits().values()):
        raise InvalidOptions("response_format is not supported with suffix", "Leave one of them out.")
    if body.suffix and body.logprobs is not None:
        raise InvalidOptions("logprobs is not supported with suffix", "Leave logprobs out.")
    count = count_of(body.n, MOST_FILLED if body.suffix else prompts.MOST, "n")
    if body.suffix:
        return await _fill_gap(client, body, count)
    each_prompt = prompts.prompts_of(body.prompt)
    is_rated = body.logprobs is not None
    names = {"top_logprobs": "logprobs"}
    options = options_of(body, names, logprobs=is_rated or None, top_logprobs=body.logprobs)
    streams = await prompts.continue_prompts(client, each_prompt, options, count, body.generating())
    envelope = _envelope("cmpl", "text_completion", options)

    def columns(text: str, tokens: Iterable[Token], offset: int = 0) -> dict[str, Any] | None:
        return None if body.logprobs is None else answers.columns(text, tokens, offset, body.logprobs)

    if body.stream:
        offsets = [0] * len(streams)

        def shape(index: int, piece: StreamDelta) -> dict[str, Any]:
            offset, offsets[index] = offsets[index], offsets[index] + len(piece.text)
            return {"text": piece.text, "logprobs": columns(piece.text, piece.tokens, offset)}

        last = {"text": "", "logprobs": None}
        return _chunks(envelope, body, [], await Pieces(streams, body).begin(), shape, last)
    found = await answers.whole(streams)
    choices = [{"text": end.text, "logprobs": columns(end.text, tokens)} for tokens, end in found]
    return _end(envelope, choices, [result for _, result in found], count)


async def _fill_gap(client: Client, body: TextBody, count: int) -> Answer:
    """Answer with the text between one prompt and its suffix. Raises :class:`InvalidOptions`."""
    prompt, *more = prompts.prompts_of(body.prompt)
    if more or not isinstance(prompt, str):
        what = "several prompts are" if more else "a prompt of tokens is"
        raise InvalidOptions(f"{what} not supported with suffix", "Give one prompt, as a string.")
    if body.temperature is None and read_config().options.temperature is None:
        body.temperature = FILL_TEMPERATURE
    options = options_of(body)
    stream = client.complete(
        prompt, body.suffix or "", n=count, trigger="invoked", options=options, **body.deadlines()
    )
    done = await stream.result()
    envelope = _envelope("cmpl", "text_completion", options)
    texts = [item.text for item in done.items] or [""]
    choices: list[dict[str, Any]] = [{"text": text, "logprobs": None} for text in texts]
    if body.stream:  # it is known only once it is whole
        return each(_last(envelope | _no_usage(body), choices, body, [done.result]))
    return _end(envelope, choices, [done.result], 1)


def _envelope(prefix: str, kind: str, options: Options) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": options.model or DEFAULT_MODEL,
        "system_fingerprint": f"b-localspec-{__version__}",
    }


def _end(
    envelope: dict[str, Any], choices: list[dict[str, Any]], results: list[Result], each: int
) -> dict[str, Any]:
    """Return the body with all answers, ``each`` to every prompt; statistics and timings are the first
    one's. One result may have several choices."""
    reasons = [FINISH.get(uncut(result).finish_reason, "stop") for result in results]
    reasons += reasons[-1:] * (len(choices) - len(reasons))
    return {
        **envelope,
        "choices": [
            {"index": i, **choice, "finish_reason": reason}
            for i, (choice, reason) in enumerate(zip(choices, reasons, strict=True))
        ],
        "usage": _usage(results, each),
        "timings": timings(results[0]),
        "localspec": statistics(results[0]),
    }


def _usage(results: list[Result], each: int) -> dict[str, Any]:
    """Return the tokens of all answers, and of each prompt once: it has ``each`` results in a row."""
    prompts = results[::each]
    read = sum(result.prompt_tokens for result in prompts)
    answered = sum(result.completion_tokens for result in results)
    return {
        "prompt_tokens": read,
        "completion_tokens": answered,
        "total_tokens": read + answered,
        "prompt_tokens_details": {"cached_tokens": sum(result.cached_tokens for result in prompts)},
        "completion_tokens_details": {"reasoning_tokens": sum(each.thinking_tokens for each in results)},
    }


Shape = Callable[[int, StreamDelta], dict[str, Any]]


async def _chunks(
    envelope: dict[str, Any],
    body: OpenaiBody,
    begin: list[dict[str, Any]],
    pieces: Pieces,
    shape: Shape,
    last: dict[str, Any],
) -> AsyncGenerator[Any]:
    """Yield the chunks; ``begin`` has the contents of first ones, ``last`` that of each answer's last one."""
    envelope = envelope | _no_usage(body)
    ended: dict[int, Result] = {}
    for index, content in enumerate(begin):
        yield _chunk(envelope, index, content)
    async for piece in pieces:
        if piece is None:
            yield None
            continue
        index, event, more = piece
        if isinstance(event, Result):
            ended[index] = event
        else:
            content = last if isinstance(event, StreamProgress) else shape(index, event)
            yield _chunk(envelope, index, content) | more
    results = [ended[index] for index in sorted(ended)]
    for chunk in _last(envelope, [last] * len(results), body, results):
        yield chunk


def _chunk(envelope: dict[str, Any], index: int, content: dict[str, Any]) -> dict[str, Any]:
    return {**envelope, "choices": [{"index": index, **content, "finish_reason": None}]}


def _last(
    envelope: dict[str, Any], choices: list[dict[str, Any]], body: OpenaiBody, results: list[Result]
) -> list[dict[str, Any]]:
    """Return the last chunks of a stream: one for each answer, and one with the usage if it was requested."""
    end = _end(envelope, choices, results, body.n or 1)
    usage, none = end.pop("usage"), _no_usage(body)
    *others, choice = end["choices"]
    chunks = [{**envelope, "choices": [other]} for other in others]
    chunks.append(end | none | {"choices": [choice]})
    if none:
        chunks.append({**envelope, "choices": [], "usage": usage, "timings": end["timings"]})
    return chunks


def _no_usage(body: OpenaiBody) -> dict[str, None]:
    """Return the field ``usage`` of all chunks but the last; no field if usage was not requested."""
    is_requested = body.stream_options is not None and body.stream_options.include_usage
    return {"usage": None} if is_requested else {}


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    else:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    code = CODES.get(error.code, error.code)
    fields = {"message": sentence(error), "type": kind, "param": None, "code": code}
    return {"error": fields | context_numbers(error)}


DIALECT = Dialect(
    "openai",
    (
        Endpoint("GET", "/v1/models", NoParams, models),
        Endpoint("GET", "/v1/models/{id:path}", PathId, model),
        Endpoint("POST", "/v1/chat/completions", OpenaiChatBody, chat, REFUSED_OF_CHATS),
        Endpoint("POST", "/v1/chat/completions/input_tokens", OpenaiChatBody, count_tokens, REFUSED_OF_CHATS),
        Endpoint("POST", "/v1/completions", TextBody, text, REFUSED_OF_TEXTS),
    ),
    error,
    SSE,
)
