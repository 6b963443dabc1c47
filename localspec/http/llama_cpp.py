"""llama.cpp's dialect: what llama.vim, llama.vscode and scripts ask of its server.

Of the README and source of `llama-server`. Unlike there ``t_max_prompt_ms`` does end a prompt that takes too
long, and one that is only read (``n_predict`` 0) waits for everybody else. ``id_slot`` and ``cache_prompt``
are taken and mean nothing: every prompt finds its cache by itself. Without a temperature a gap is filled
greedily, whatever the ``samplers``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from itertools import takewhile
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec._version import __version__
from localspec.client import Client, Stream
from localspec.errors import InvalidOptions, LocalspecError
from localspec.http import samplers
from localspec.http.dialect import SSE, Dialect, context_numbers, sentence
from localspec.http.endpoint import REMEDY, Answer, Endpoint, Nothing, begun, each
from localspec.http.fields import Ours, length_of, refuse, statistics, uncut
from localspec.http.models import DEFAULT_MODEL, model_of
from localspec.http.sampling import TimedSampling, options_of
from localspec.http.timings import timings
from localspec.protocol.messages import StreamDelta, Warmed
from localspec.protocol.options import Options
from localspec.protocol.requests import File
from localspec.protocol.results import FinishReason, Result, Stats

MISSING = object()
UNNAMED = "unnamed"
MOST_ANSWERS = 8
STOP_TYPES: dict[FinishReason, str] = {"stop": "eos", "stop_string": "eos"}
"""where it was no word that ended it; all others are ``limit``"""
KINDS = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.METHOD_NOT_ALLOWED: "invalid_request_error",
    HTTPStatus.REQUEST_TIMEOUT: "invalid_request_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "invalid_request_error",
    HTTPStatus.NOT_IMPLEMENTED: "not_supported_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable_error",
}
"""of errors; all others are ``server_error``"""


class Extra(msgspec.Struct):
    text: str
    filename: str | None = None


class Asking(TimedSampling, kw_only=True):
    """What both ways to ask have."""

    model: str | None = None
    n_predict: int | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    n: int | None = None
    n_cmpl: int | None = None
    stream: bool | None = None
    response_fields: list[str] | None = None
    return_tokens: bool | None = None
    localspec: Ours | None = None


class InfillBody(Asking, kw_only=True):
    """``POST /infill``"""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] = []
    prompt: str = ""
    n_indent: int | None = None


class CompletionBody(Asking, kw_only=True):
    """``POST /completion``"""

    prompt: str | list[str]


class TokenizeBody(msgspec.Struct):
    """``POST /tokenize``"""

    content: Annotated[str, Meta(max_length=1 << 18)]
    model: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


REFUSED_OF_GAPS = {"return_tokens": (False,)}
REFUSED_OF_TEXTS = {"n": (1,), "n_cmpl": (1,)}


async def infill(client: Client, body: InfillBody) -> Answer:
    """Fill in what is missing between prefix and suffix; ``prompt`` is the end of the prefix."""
    refuse(body, REFUSED_OF_GAPS)
    count = _count(body)
    prefix, options = body.input_prefix + body.prompt, _options(body)
    extra = tuple(File(each.filename or UNNAMED, each.text) for each in body.input_extra)
    if body.n_predict == 0:
        # Nobody waits for it, so no time limit ends it either.
        warmed = await client.warm(None, prefix, body.input_suffix, extra=extra, options=options).result()
        return _picked(body, _facts(_read_only(options, warmed), ""))
    done = await client.complete(
        prefix,
        body.input_suffix,
        extra=extra,
        n=count,
        trigger="automatic" if samplers.INFILL in samplers.names_of(body.samplers) else "invoked",
        options=options,
        **body.deadlines(),
    ).result()
    texts = [_indented(item.text, body.n_indent) for item in done.items] or [""]
    first, *others = texts
    more = [{"index": i, "content": text, "stop": True} for i, text in enumerate(others, 1)]
    answers = [_picked(body, facts) for facts in (_facts(done.result, first), *more)]
    if body.stream:
        return each(answers)
    return answers if count > 1 else answers[0]


async def complete(client: Client, body: CompletionBody) -> Answer:
    """Continue a text as it is."""
    refuse(body, REFUSED_OF_TEXTS)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise InvalidOptions(f"one prompt is taken, not {len(prompts)}", "Send a request for each.")
    stream = client.generate(prompts[0], raw=True, options=_options(body), **body.deadlines())
    if not body.stream:
        tokens = [token.id async for delta in stream for token in delta.tokens]
        result = await stream.result()
        return _picked(body, _facts(result, result.text) | {"tokens": tokens if body.return_tokens else []})
    return _chunks(body, await begun(stream), stream)


async def health(client: Client, body: Nothing) -> Answer:
    """Whether the daemon answers."""
    return {"status": "ok"}


async def props(client: Client, body: Nothing) -> Answer:
    """Of the model that is configured, which is loaded for that."""
    loaded = await client.load().result()
    return {
        "default_generation_settings": {"n_ctx": loaded.n_ctx, "model": loaded.model},
        "model_path": loaded.path,
        "model_alias": loaded.model,
        "build_info": f"localspec {__version__}",
    }


async def tokenize(client: Client, body: TokenizeBody) -> Answer:
    """The tokens of a text."""
    found = await client.tokenize(
        body.content,
        model=model_of(body.model),
        start=body.add_special,
        special=body.parse_special,
        pieces=body.with_pieces,
    )
    if not body.with_pieces:
        return {"tokens": [token.id for token in found]}
    return {"tokens": [{"id": token.id, "piece": _piece(token.piece or b"")} for token in found]}


async def _chunks(
    body: CompletionBody, pieces: AsyncIterator[StreamDelta], stream: Stream[Result]
) -> AsyncIterator[Any]:
    async for piece in pieces:
        yield {"index": 0, "content": piece.text, "tokens": [t.id for t in piece.tokens], "stop": False}
    yield _picked(body, _facts(await stream.result(), ""))


def _options(body: Asking) -> Options:
    longest = length_of(body.n_predict, body.max_completion_tokens, body.max_tokens)
    return options_of(body, {"model": body.model, "max_tokens": longest}, body.localspec)


def _count(body: InfillBody) -> int:
    """How many answers. Raises :class:`InvalidOptions`."""
    said = body.n if body.n_cmpl is None else body.n_cmpl
    count = 1 if said is None else said
    if not 1 <= count <= MOST_ANSWERS:
        raise InvalidOptions(f"n_cmpl takes a whole number from 1 to {MOST_ANSWERS}, not {count}", REMEDY)
    return count


def _indented(text: str, least: int | None) -> str:
    """Without what begins with a line that is indented by less."""
    if not least:
        return text
    first, *lines = text.split("\n")
    kept = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip(" \t")) >= least, lines)
    return "\n".join([first, *kept])


def _read_only(options: Options, warmed: Warmed) -> Result:
    """What a prompt that was read is told of."""
    return Result(
        text="",
        finish_reason="length",
        model=options.model or DEFAULT_MODEL,
        draft=None,
        backend="",
        prompt_tokens=warmed.prompt_tokens,
        cached_tokens=warmed.prompt_tokens - warmed.reprefilled_tokens,
        completion_tokens=0,
        stats=Stats(),
    )


def _facts(result: Result, text: str) -> dict[str, Any]:
    """All that an answer says."""
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
    }


def _picked(body: Asking, facts: dict[str, Any]) -> dict[str, Any]:
    """The fields that are wanted, by their paths; all if none is named."""
    if not body.response_fields:
        return facts
    picked = {}
    for path in body.response_fields:
        value: Any = facts
        for key in filter(None, path.split("/")):
            value = value.get(key, MISSING) if isinstance(value, dict) else MISSING
        if value is not MISSING and path:
            picked[path] = value
    return picked


def _piece(piece: bytes) -> str | list[int]:
    """Bytes that are no text are told as numbers, as there."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    """As its clients read it."""
    kind = (
        "exceed_context_size_error" if error.code == "context_exceeded" else KINDS.get(status, "server_error")
    )
    return {"error": {"code": status, "message": sentence(error), "type": kind} | context_numbers(error)}


DIALECT = Dialect(
    "llama.cpp",
    (
        Endpoint("POST", "/infill", InfillBody, infill),
        Endpoint("POST", "/completion", CompletionBody, complete),
        Endpoint("GET", "/health", Nothing, health, open=True),
        Endpoint("GET", "/props", Nothing, props),
        Endpoint("POST", "/tokenize", TokenizeBody, tokenize),
    ),
    error,
    SSE._replace(end=b""),
    {"fim_unsupported": HTTPStatus.NOT_IMPLEMENTED},
)
