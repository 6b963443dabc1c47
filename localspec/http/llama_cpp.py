"""llama.cpp's dialect: the endpoints of its server that llama.vim, llama.vscode and scripts use.

Source: README and code of `llama-server`. Unlike there ``t_max_prompt_ms`` does end a prompt that takes too
long, and a prompt that is only read (``n_predict`` 0) waits for all other requests. ``id_slot`` and
``cache_prompt`` are accepted and have no effect: every prompt reuses the prefix that is cached. Without a
temperature a gap is filled greedily, whatever the ``samplers``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from functools import reduce
from http import HTTPStatus
from itertools import takewhile
from operator import getitem
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.responses import Response

from localspec._version import __version__
from localspec.client import Client
from localspec.errors import LocalspecError
from localspec.http import answers, openai, prompts, sampling
from localspec.http.answers import entries, statistics, timings, uncut
from localspec.http.dialect import SSE, Dialect, context_numbers, sentence
from localspec.http.endpoint import Answer, Endpoint, Refused, each
from localspec.http.models import model_of, read_config, read_texts
from localspec.http.sampling import INFILL, MOST_NAMES, TimedSampling, count_of, options_of
from localspec.protocol.messages import CompletionWarm, NoParams, StreamProgress, Tokenize
from localspec.protocol.options import KINDS, Options
from localspec.protocol.requests import ChatPrompt, File, FinishReason, Result, Token

STOP_TYPES: dict[FinishReason, str] = {"stop": "eos", "stop_string": "eos"}
"""``stop_type`` by finish reason, for answers that no stop string ended; all others are ``limit``"""
ERROR_KINDS = {
    **dict.fromkeys((400, 405, 408, 413), "invalid_request_error"),
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.NOT_IMPLEMENTED: "not_supported_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable_error",
}
"""types of errors by status; all others are ``server_error``"""

CAPS = "supports_tools", "supports_tool_calls", "supports_parallel_tool_calls"
"""``chat_template_caps``: what chats can use here, whatever the template could"""
DRAFTING = tuple(f'rounds_total{{choice="{kind.name}"' for kind in KINDS)
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
    "seed": sampling.CHANCE[1],
    "stop": (),
}
"""values of options that neither the request nor the configuration sets; a model may have its own"""


class Extra(msgspec.Struct):
    text: str
    filename: str | None = None


class LlamaGenerationBody(TimedSampling, kw_only=True):
    n_cmpl: int | None = None
    n_probs: int | None = None
    response_fields: Annotated[list[str], MOST_NAMES] | None = None
    return_tokens: bool | None = None


class InfillBody(LlamaGenerationBody, kw_only=True):
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] = []
    prompt: str = ""
    n_indent: int | None = None


class CompletionBody(LlamaGenerationBody, kw_only=True):
    prompt: prompts.Prompt


class TokenizeBody(msgspec.Struct):
    content: Annotated[str, Meta(max_length=1 << 18)]
    model: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct):
    tokens: Annotated[list[int], Meta(max_length=1 << 18)]
    model: str | None = None


REFUSED_OF_TEXTS: Refused = {**sampling.REFUSED, "n_indent": (0,), "image_data": ([],)}
REFUSED_OF_GAPS: Refused = {
    **sampling.REFUSED,
    **sampling.UNLIMITED,
    "return_tokens": (False,),
    "n_probs": (0,),
}


async def infill(client: Client, body: InfillBody) -> Answer:
    """Fill the gap between prefix and suffix; ``prompt`` is the end of the prefix."""
    count = count_of(body.n if body.n_cmpl is None else body.n_cmpl, openai.MOST_FILLED, "n_cmpl")
    prefix, options = body.input_prefix + body.prompt, _options(body)
    extra = tuple(File(each.filename or "unnamed", each.text) for each in body.input_extra)
    if body.n_predict == 0:
        # No client waits for its text, so no time limit ends it either.
        params = CompletionWarm(prefix=prefix, suffix=body.input_suffix, extra=extra, options=options)
        warmed = await client.warm(params).result()
        return _pick_fields(body, {"content": "", "stop": True, "tokens_evaluated": warmed.prompt_tokens})
    done = await client.complete(
        prefix,
        body.input_suffix,
        extra=extra,
        n=count,
        trigger="automatic" if INFILL in sampling.active(body.samplers) else "invoked",
        options=options,
        **body.deadlines(),
    ).result()
    first, *others = [_cut_at_indent(item.text, body.n_indent) for item in done.items] or [""]
    facts = [_facts(body, options, prefix, done.result, first)]
    facts += [{"index": i, "content": text, "stop": True} for i, text in enumerate(others, 1)]
    found = [_pick_fields(body, fields) for fields in facts]
    if body.stream:
        return each(found)
    return found if count > 1 else found[0]


async def complete(client: Client, body: CompletionBody) -> Answer:
    given = prompts.prompts_of(body.prompt)
    count = count_of(body.n if body.n_cmpl is None else body.n_cmpl, prompts.MOST, "n_cmpl")
    options = _options(body)
    each_prompt = [prompt for prompt in given for _ in range(count)]
    streams = await prompts.continue_prompts(client, given, options, count, body.generating())
    if body.stream:
        return _chunks(body, options, each_prompt, await answers.Pieces(streams, body).begin())
    found = []
    ended = zip(each_prompt, await answers.whole(streams), strict=True)
    for i, (prompt, (tokens, result)) in enumerate(ended):
        facts = _facts(body, options, prompt, result, result.text)
        facts |= {"index": i, "tokens": [token.id for token in tokens] if body.return_tokens else []}
        found.append(_pick_fields(body, facts | _probable(body, result.text, tokens)))
    return found if len(found) > 1 or isinstance(body.prompt, list) and len(given) > 1 else found[0]


async def tokenize(client: Client, body: TokenizeBody) -> Answer:
    params = Tokenize(
        text=body.content,
        model=model_of(body.model),
        start=body.add_special,
        special=body.parse_special,
        pieces=body.with_pieces,
    )
    found = await client.tokenize(params)
    if not body.with_pieces:
        return {"tokens": found.tokens}
    pairs = zip(found.tokens, found.pieces, strict=True)
    return {"tokens": [{"id": id, "piece": _piece(piece)} for id, piece in pairs]}


async def detokenize(client: Client, body: DetokenizeBody) -> Answer:
    return {"content": await _text(client, tuple(body.tokens), body.model) if body.tokens else ""}


async def apply_template(client: Client, body: openai.OpenaiChatBody) -> Answer:
    return {"prompt": await _text(client, openai.chat_by(body), body.model)}


async def _text(client: Client, given: tuple[int, ...] | ChatPrompt, model: str | None) -> str:
    found = await client.tokenize(Tokenize(text=given, model=model_of(model), pieces=True))
    return b"".join(found.pieces).decode("utf-8", "replace")


async def _chunks(
    body: CompletionBody, options: Options, each_prompt: list[prompts.Single], pieces: answers.Pieces
) -> AsyncGenerator[Any]:
    async for piece in pieces:
        if piece is None:
            yield None
            continue
        index, event, more = piece
        if isinstance(event, Result):
            facts = _facts(body, options, each_prompt[index], event, "")
            yield _pick_fields(body, facts | {"index": index})
            continue
        if isinstance(event, StreamProgress):
            yield {"index": index, "content": "", "tokens": [], "stop": False, **more}
            continue
        chunk = {"index": index, "content": event.text, "tokens": [t.id for t in event.tokens], "stop": False}
        yield chunk | _probable(body, event.text, event.tokens) | more


def _probable(body: LlamaGenerationBody, text: str, tokens: Iterable[Token]) -> dict[str, Any]:
    return {"completion_probabilities": [*entries(text, tokens)]} if body.n_probs else {}


def _options(body: LlamaGenerationBody) -> Options:
    top = body.n_probs or None
    return options_of(body, {"top_logprobs": "n_probs"}, logprobs=top and True, top_logprobs=top)


def _cut_at_indent(text: str, least: int | None) -> str:
    """Cut a text before the second or later line that is indented by less than ``least`` characters."""
    if not least:
        return text
    first, *lines = text.split("\n")
    kept = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip(" \t")) >= least, lines)
    return "\n".join([first, *kept])


def _facts(
    body: LlamaGenerationBody, options: Options, prompt: prompts.Single, result: Result, text: str
) -> dict[str, Any]:
    return {
        "index": 0,
        "content": text,
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "model": result.model,
        "tokens_predicted": result.completion_tokens,
        "tokens_evaluated": result.prompt_tokens,
        "has_new_line": "\n" in (text or result.text),
        "truncated": result.finish_reason == "context_full",
        "stop_type": "word" if result.stop_text else STOP_TYPES.get(uncut(result).finish_reason, "limit"),
        "stopping_word": result.stop_text or "",
        "tokens_cached": result.prompt_tokens + result.completion_tokens,
        "timings": timings(result),
        "localspec": statistics(result),
        "prompt": prompt,
        "generation_settings": generation_settings(options, body),
    }


def _pick_fields(body: LlamaGenerationBody, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that ``response_fields`` lists, by their paths; all without such a list."""
    if not body.response_fields:
        return facts
    picked: dict[str, Any] = {}
    for path in body.response_fields:
        with suppress(KeyError, TypeError):
            picked[path] = reduce(getitem, path.split("/"), facts)
    return picked


def _piece(piece: bytes) -> str | list[int]:
    """Return a token's text; its bytes as numbers if they are no text, as llama-server does."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


async def health(client: None, body: NoParams) -> Answer:
    return {"status": "ok"}


async def props(client: Client, body: NoParams) -> Answer:
    """Load the configured model if it is not loaded, and return its properties."""
    loaded = await client.load().result()
    texts, abilities = await asyncio.to_thread(read_texts, loaded.path)
    settings = {"n_ctx": loaded.n_ctx, "model": loaded.model, "params": generation_settings()}
    return {
        "default_generation_settings": settings,
        "total_slots": loaded.sequences or read_config().engine.parallel or 1,
        "model_path": loaded.path,
        "model_alias": loaded.model,
        **texts,
        "chat_template_caps": dict.fromkeys(CAPS, "tools" in abilities),
        "modalities": {"vision": False, "video": False, "audio": False},
        "build_info": f"localspec {__version__}",
    }


async def metrics(client: Client, body: NoParams) -> Answer:
    """Return the totals since the daemon started in Prometheus' format, by llama.cpp's names."""
    status, totals = await client.status(), (await client.metrics()).totals
    lines: list[str] = []

    def total(*beginnings: str) -> float:
        return sum(v for key, v in totals.items() if key.removeprefix("localspec_").startswith(beginnings))

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
    headers = {"Process-Start-Time-Unix": str(int(time.time() - status.uptime_s))}
    return Response("\n".join((*lines, "")), headers=headers, media_type="text/plain; version=0.0.4")


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def generation_settings(options: Options = NO_OPTIONS, body: LlamaGenerationBody | None = None) -> Any:
    """Return llama.cpp's ``generation_settings``; a gap is filled at temperature 0 unless one is set."""
    merged = options.over(read_config().options)
    if isinstance(body, InfillBody) and merged.temperature is None:
        merged = replace(merged, temperature=0.0)
    values = DEFAULTS | {name: v for name in DEFAULTS if (v := getattr(merged, name)) is not None}
    bias = [{"token": token, "bias": added} for token, added in merged.logit_bias or ()]
    return {
        **values,
        "n_predict": values["max_tokens"],
        "logit_bias": bias,
        "samplers": sampling.active(body.samplers if body else None),
        "speculative.types": merged.proposer or "auto",
    }


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    kind = ERROR_KINDS.get(status, "server_error")
    if error.code == "context_exceeded":
        kind = "exceed_context_size_error"
    return {"error": {"code": status, "message": sentence(error), "type": kind} | context_numbers(error)}


DIALECT = Dialect(
    "llama.cpp",
    (
        Endpoint("POST", "/infill", InfillBody, infill, REFUSED_OF_GAPS),
        Endpoint("POST", "/completion", CompletionBody, complete, REFUSED_OF_TEXTS),
        Endpoint("POST", "/completions", CompletionBody, complete, REFUSED_OF_TEXTS),
        Endpoint("GET", "/health", NoParams, health, open=True),
        Endpoint("GET", "/v1/health", NoParams, health, open=True),
        Endpoint("GET", "/props", NoParams, props),
        Endpoint("GET", "/metrics", NoParams, metrics),
        Endpoint("GET", "/models", NoParams, openai.models),
        Endpoint("POST", "/tokenize", TokenizeBody, tokenize),
        Endpoint("POST", "/detokenize", DetokenizeBody, detokenize),
        Endpoint("POST", "/apply-template", openai.OpenaiChatBody, apply_template, openai.REFUSED_OF_CHATS),
    ),
    error,
    SSE._replace(end=b""),
    {"fim_unsupported": HTTPStatus.NOT_IMPLEMENTED},
)
CHATS = (each for each in openai.DIALECT.endpoints if each.body is openai.OpenaiChatBody)
CHAT = DIALECT._replace(
    endpoints=tuple(each._replace(path=each.path.removeprefix("/v1")) for each in CHATS), framing=SSE
)
"""chat with the stream's end that OpenAI's dialect has"""
