"""OpenAI's dialect: models, chat completions and completions, whole or as server-sent events.

Source: <https://platform.openai.com/docs/api-reference>. The field ``localspec`` of a request takes further
options by our names; the one of an answer holds its statistics. Additional fields of llama.cpp's server and
of vLLM are accepted: their clients chat in this dialect.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import msgspec

from localspec._version import __version__
from localspec.client import Client
from localspec.errors import InvalidOptions, LocalspecError
from localspec.http import probabilities, prompts, several
from localspec.http.conversation import ChatMessage, conversation_of
from localspec.http.dialect import SSE, Dialect, context_numbers, sentence
from localspec.http.endpoint import Answer, Endpoint, Nothing, each
from localspec.http.fields import Ours, length_of, refuse, statistics, uncut
from localspec.http.models import DEFAULT_MODEL, configured, model_named, modified_s, named_models
from localspec.http.sampling import TimedSampling, biased_options
from localspec.http.timings import Pace, timings
from localspec.models.fit import context_size
from localspec.models.sections import Sections
from localspec.protocol.messages import ModelDescription, StreamDelta, StreamProgress
from localspec.protocol.options import Options
from localspec.protocol.results import FinishReason, Result

FINISH: dict[FinishReason, str] = {"length": "length", "context_full": "length", "deadline": "length"}
"""all others are ``stop``"""
MODELS = "/v1/models/"
MOST_FILLED = 8
"""the number of texts for one gap"""
FILL_TEMPERATURE = 1.0
"""the dialect's default for a gap: several requests are to give several texts"""
CODES = {"context_exceeded": "context_length_exceeded", "unauthorized": "invalid_api_key"}
CODES |= dict.fromkeys(("queue_full", "engine_busy"), "rate_limit_exceeded")
"""codes of errors that OpenAI names"""


class ModelName(msgspec.Struct):
    """The name of a model, from the path."""

    id: str


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class GenerationBody(TimedSampling, kw_only=True):
    """The fields that chat completions and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    n: int | None = None
    n_indent: int | None = None
    localspec: Ours | None = None


class ChatBody(GenerationBody, kw_only=True):
    """``POST /v1/chat/completions``"""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    verbosity: str | None = None
    web_search_options: Any = None
    echo: bool | None = None
    best_of: int | None = None
    add_special_tokens: bool | None = None
    documents: list[Any] | None = None


class TextBody(GenerationBody, kw_only=True):
    """``POST /v1/completions``"""

    prompt: prompts.Prompt
    suffix: str | None = None
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    prompt_embeds: Any = None


REFUSED_OF_TEXTS: dict[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "add_special_tokens": (True,),
    "prompt_embeds": (),
    "n_indent": (0,),
}
REFUSED_OF_CHATS: dict[str, tuple[Any, ...]] = {
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "reasoning_effort": ("none",),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "chat_template": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "echo": (False,),
    "best_of": (1,),
    "add_special_tokens": (False,),
    "documents": ([],),
    "n_indent": (0,),
}


async def models(client: Client, body: Nothing) -> Answer:
    """Return the models that can be loaded, by the names that requests may give."""
    return {"object": "list", "data": await _cards(await named_models(client))}


async def model(client: Client, body: ModelName) -> Answer:
    """Return one model, by any of its names."""
    (card,) = await _cards({body.id: await model_named(client, body.id)})
    return card


async def _cards(named: dict[str, ModelDescription]) -> list[Any]:
    sections = Sections(configured())
    return await asyncio.to_thread(lambda: [_card(name, each, sections) for name, each in named.items()])


def _card(name: str, model: ModelDescription, sections: Sections) -> dict[str, Any]:
    """Return the entry of a model, with ``meta`` as llama.cpp's server has it."""
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


async def chat(client: Client, body: ChatBody) -> Answer:
    """Answer a conversation, or continue an answer that is its last message."""
    refuse(body, REFUSED_OF_CHATS)
    if body.add_generation_prompt is False and not body.continue_final_message:
        message = "add_generation_prompt is false, but continue_final_message is not true"
        raise InvalidOptions(
            message, "Leave add_generation_prompt out, or set continue_final_message to true."
        )
    if body.add_generation_prompt and body.continue_final_message:
        message = "add_generation_prompt and continue_final_message are both true"
        raise InvalidOptions(message, "Leave one of them out.")
    if body.top_logprobs and not body.logprobs:
        raise InvalidOptions(
            "top_logprobs needs logprobs", "Set logprobs to true, or leave top_logprobs out."
        )
    continues = body.continue_final_message
    if continues is None and body.add_generation_prompt:
        continues = False  # an explicit generation prompt begins a new turn, as in vLLM
    messages, prefilled = conversation_of(body.messages, continues=continues)
    longest = length_of(body.n_predict, body.max_completion_tokens, body.max_tokens)
    top = body.top_logprobs if body.logprobs else None
    options = await _options(
        client, body, max_tokens=longest, logprobs=body.logprobs or None, top_logprobs=top
    )
    variables = body.chat_template_kwargs or {}
    streams = [
        client.generate(
            messages=messages,
            prefilled=prefilled,
            variables=variables,
            options=each,
            **body.generating(stream=body.stream),
        )
        for each in several.varied(options, _count(body.n))
    ]
    envelope = _envelope("chatcmpl", "chat.completion", options)
    if body.stream:
        chunk = envelope | {"object": "chat.completion.chunk"} | _no_usage(body)
        return _chat_chunks(chunk, body, await several.pieces(streams), len(streams))
    found = await several.whole(streams)
    choices = [
        {
            "message": {"role": "assistant", "content": result.text},
            "logprobs": {"content": [*probabilities.entries(result.text, tokens)]} if body.logprobs else None,
        }
        for tokens, result in found
    ]
    results = [answered.result for answered in found]
    return _end(envelope, choices, results, _usage(results, len(results)))


async def text(client: Client, body: TextBody) -> Answer:
    """Continue texts, or fill the gap before ``suffix``."""
    refuse(body, REFUSED_OF_TEXTS)
    if body.logprobs is not None and (body.suffix or body.echo):
        raise InvalidOptions("logprobs is not supported with suffix or echo", "Leave logprobs out.")
    if body.suffix:
        return await _filled(client, body)
    each_prompt = prompts.prompts_of(body.prompt)
    before = [prompts.text_of(prompt, "with echo") if body.echo else "" for prompt in each_prompt]
    count = _count(body.n)
    tried = max(count, body.best_of or 1)
    if len(each_prompt) * tried > prompts.MOST:
        message = f"one request is for {len(each_prompt) * tried} answers (prompts times n or best_of)"
        raise InvalidOptions(message, f"Request at most {prompts.MOST} answers at once.")
    if body.stream and tried > count:
        raise InvalidOptions("best_of above n is not supported with stream", "Leave best_of or stream out.")
    longest = length_of(body.n_predict, body.max_tokens)
    is_rated = body.logprobs is not None or tried > count
    options = await _options(
        client, body, max_tokens=longest, logprobs=is_rated or None, top_logprobs=body.logprobs
    )
    streams = [
        await prompts.continued(client, prompt, varied, body.generating(stream=body.stream))
        for prompt in each_prompt
        for varied in several.varied(options, tried)
    ]
    envelope = _envelope("cmpl", "text_completion", options)
    before = [text for text in before for _ in range(count)]
    if body.stream:
        return _text_chunks(envelope | _no_usage(body), body, before, await several.pieces(streams))
    whole = await several.whole(streams)
    usage = _usage([answered.result for answered in whole], tried)
    found = _best(whole, tried, count)
    choices = [
        {
            "text": prompt + result.text,
            "logprobs": None
            if body.logprobs is None
            else probabilities.columns(result.text, tokens, 0, body.logprobs),
        }
        for prompt, (tokens, result) in zip(before, found, strict=True)
    ]
    return _end(envelope, choices, [answered.result for answered in found], usage)


async def _filled(client: Client, body: TextBody) -> Answer:
    """Answer with the text between one prompt and its suffix. Raises :class:`InvalidOptions`."""
    first, *more = prompts.prompts_of(body.prompt)
    if more:
        raise InvalidOptions(
            "several prompts are not supported with suffix", "Send one request for each prompt."
        )
    prompt, count = prompts.text_of(first, "with suffix"), _count(body.n)
    if count > MOST_FILLED:
        raise InvalidOptions(
            f"with suffix, n is at most {MOST_FILLED}, not {count}", f"Set n to at most {MOST_FILLED}."
        )
    if (body.best_of or count) > count:
        raise InvalidOptions(
            f"with suffix, best_of is at most n, which is {count}, not {body.best_of}", "Leave best_of out."
        )
    if body.temperature is None and configured().options.temperature is None:
        body.temperature = FILL_TEMPERATURE
    options = await _options(client, body, max_tokens=length_of(body.n_predict, body.max_tokens))
    stream = client.complete(
        prompt, body.suffix or "", n=count, trigger="invoked", options=options, **body.deadlines()
    )
    done = await stream.result()
    envelope = _envelope("cmpl", "text_completion", options)
    before = prompt if body.echo else ""
    texts = [item.text for item in done.items] or [""]
    choices: list[dict[str, Any]] = [{"text": before + text, "logprobs": None} for text in texts]
    if body.stream:  # it is known only once it is whole
        return each(_last(envelope | _no_usage(body), choices, body, [done.result]))
    return _end(envelope, choices, [done.result], _usage([done.result], 1))


def _best(found: list[several.Answered], tried: int, count: int) -> list[several.Answered]:
    """Return the ``count`` most probable of each prompt's ``tried`` answers, by mean log-probability."""
    if tried == count:
        return found
    groups = (found[i : i + tried] for i in range(0, len(found), tried))
    rated = (sorted(group, key=lambda one: -probabilities.mean(one.tokens)) for group in groups)
    return [one for group in rated for one in group[:count]]


def _count(given: int | None) -> int:
    """Return the number of answers, 1 by default.

    Raises :class:`InvalidOptions` if not in 1 to :data:`prompts.MOST`.
    """
    count = 1 if given is None else given
    if not 1 <= count <= prompts.MOST:
        raise InvalidOptions(
            f"n takes a whole number from 1 to {prompts.MOST}, not {count}",
            f"Set n to at most {prompts.MOST}; send several requests for more.",
        )
    return count


async def _options(client: Client, body: GenerationBody, **others: Any) -> Options:
    names = {"top_logprobs": "logprobs"} if isinstance(body, TextBody) else {}
    return await biased_options(client, body, {"model": body.model, **others}, body.localspec, names)


# Answers.


def _envelope(prefix: str, kind: str, options: Options) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": options.model or DEFAULT_MODEL,
        "system_fingerprint": f"b-localspec-{__version__}",
    }


def _end(
    envelope: dict[str, Any], choices: list[dict[str, Any]], results: list[Result], usage: dict[str, Any]
) -> dict[str, Any]:
    """Return the body with all answers; statistics and timings are the first one's."""
    return {
        **envelope,
        "choices": _ended(choices, results),
        "usage": usage,
        "timings": timings(results[0]),
        "localspec": statistics(results[0]),
    }


def _ended(choices: list[dict[str, Any]], results: list[Result]) -> list[dict[str, Any]]:
    """Return the choices with index and finish reason; one result may have several choices."""
    reasons = [FINISH.get(uncut(result).finish_reason, "stop") for result in results]
    reasons += reasons[-1:] * (len(choices) - len(reasons))
    return [
        {"index": i, **choice, "finish_reason": reason}
        for i, (choice, reason) in enumerate(zip(choices, reasons, strict=True))
    ]


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
    }


Shape = Callable[[int, StreamDelta], dict[str, Any]]
"""makes the choice of a piece of an answer"""


async def _chat_chunks(
    envelope: dict[str, Any], body: ChatBody, pieces: AsyncIterator[several.Piece], count: int
) -> AsyncIterator[Any]:
    for index in range(count):
        first = {"index": index, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
        yield {**envelope, "choices": [first]}

    def shape(index: int, piece: StreamDelta) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": {"content": piece.text}, "finish_reason": None}
        if body.logprobs:
            choice["logprobs"] = {"content": [*probabilities.entries(piece.text, piece.tokens)]}
        return choice

    async for chunk in _chunks(envelope, body, pieces, shape, {"delta": {}}):
        yield chunk


async def _text_chunks(
    envelope: dict[str, Any], body: TextBody, before: list[str], pieces: AsyncIterator[several.Piece]
) -> AsyncIterator[Any]:
    offsets = [0] * len(before)
    for index, prompt in enumerate(before):
        if prompt:
            choice = {"index": index, "text": prompt, "logprobs": None, "finish_reason": None}
            yield {**envelope, "choices": [choice]}

    def shape(index: int, piece: StreamDelta) -> dict[str, Any]:
        columns = None
        if body.logprobs is not None:
            columns = probabilities.columns(piece.text, piece.tokens, offsets[index], body.logprobs)
        offsets[index] += len(piece.text)
        return {"index": index, "text": piece.text, "logprobs": columns, "finish_reason": None}

    async for chunk in _chunks(envelope, body, pieces, shape, {"text": "", "logprobs": None}):
        yield chunk


async def _chunks(
    envelope: dict[str, Any],
    body: GenerationBody,
    pieces: AsyncIterator[several.Piece],
    shape: Shape,
    last: dict[str, Any],
) -> AsyncIterator[Any]:
    """Yield the chunks of all answers; ``last`` is the content of each one's last chunk."""
    ended: dict[int, Result] = {}
    paces: defaultdict[int, Pace] = defaultdict(Pace)
    async for index, event in pieces:
        if isinstance(event, Result):
            ended[index] = event
            continue
        if isinstance(event, StreamProgress):
            progress, choice = paces[index].read(event), {"index": index, **last, "finish_reason": None}
            if body.return_progress:
                yield {**envelope, "choices": [choice], "prompt_progress": progress}
            continue
        chunk = {**envelope, "choices": [shape(index, event)]}
        yield chunk | {"timings": paces[index].after(event.tokens)} if body.timings_per_token else chunk
    results = [ended[index] for index in sorted(ended)]
    for chunk in _last(envelope, [last] * len(results), body, results):
        yield chunk


def _last(
    envelope: dict[str, Any], choices: list[dict[str, Any]], body: GenerationBody, results: list[Result]
) -> list[dict[str, Any]]:
    """Return the last chunks of a stream: one for each answer, and one with the usage if it was requested."""
    end = _end(envelope, choices, results, _usage(results, _count(body.n)))
    usage, none = end.pop("usage"), _no_usage(body)
    *others, choice = end["choices"]
    chunks = [{**envelope, "choices": [other]} for other in others]
    chunks.append(end | none | {"choices": [choice]})
    if none:
        chunks.append({**envelope, "choices": [], "usage": usage, "timings": end["timings"]})
    return chunks


def _no_usage(body: GenerationBody) -> dict[str, None]:
    """Return the field ``usage`` of all chunks but the last; no field if usage was not requested."""
    is_requested = body.stream_options is not None and body.stream_options.include_usage
    return {"usage": None} if is_requested else {}


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    """Return the body of an error response in OpenAI's format."""
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
        Endpoint("GET", "/v1/models", Nothing, models),
        Endpoint("GET", f"{MODELS}{{id:path}}", ModelName, model),
        Endpoint("POST", "/v1/chat/completions", ChatBody, chat),
        Endpoint("POST", "/v1/completions", TextBody, text),
    ),
    error,
    SSE,
)
