"""A dialect: its endpoints, its error format and the framing of its streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from localspec.errors import AGENT_CONTEXT, DaemonUnavailable, InvalidOptions, LocalspecError, ModelNotFound
from localspec.http.endpoint import REMEDY, Endpoint

STATUS = {
    **dict.fromkeys(("invalid_options", "context_exceeded", "fim_unsupported"), HTTPStatus.BAD_REQUEST),
    **dict.fromkeys(("model_ambiguous", "model_invalid", "model_too_large"), HTTPStatus.BAD_REQUEST),
    "tokenizer_mismatch": HTTPStatus.BAD_REQUEST,
    "model_not_found": HTTPStatus.NOT_FOUND,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_slow": HTTPStatus.REQUEST_TIMEOUT,
    "queue_full": HTTPStatus.TOO_MANY_REQUESTS,
    "engine_busy": HTTPStatus.TOO_MANY_REQUESTS,
}
"""HTTP statuses by the error's code; all others are 503: not the client's fault, a retry may succeed"""

ANY_MODEL = (
    "For a client whose model name cannot be changed: `localspec config set http.any_model true` and "
    "`localspec daemon restart` let unknown names mean the configured model."
)
DAEMON_REMEDY = "See `localspec daemon status`, and try again."


class Framing(NamedTuple):
    """The bytes around each value of a stream, its last bytes, and those of a sign of life between values.
    ``named``: the type of a value is the name of its event."""

    media_type: str
    before: bytes
    after: bytes
    end: bytes
    alive: bytes = b""
    named: bool = False

    def frame(self, value: Any) -> bytes:
        name = f"event: {value.get('type', 'error')}\n".encode() if self.named else b""
        return name + self.before + msgspec.json.encode(value) + self.after


SSE = Framing("text/event-stream", b"data: ", b"\n\n", b"data: [DONE]\n\n", b":\n\n")
NDJSON = Framing("application/x-ndjson", b"", b"\n", b"")


class Dialect(NamedTuple):
    """One HTTP interface; ``statuses`` are those that differ from :data:`STATUS`."""

    name: str
    endpoints: tuple[Endpoint, ...]
    error: Callable[[LocalspecError, HTTPStatus], Any]
    framing: Framing
    statuses: Mapping[str, HTTPStatus] = MappingProxyType({})

    def status(self, error: LocalspecError) -> HTTPStatus:
        return self.statuses.get(error.code) or STATUS.get(error.code, HTTPStatus.SERVICE_UNAVAILABLE)


CONTEXT = (
    "{has}: that exceeds the available context size, the maximum context "
    "length, of {n_ctx} tokens. {remedy} Agents "
    f'need {AGENT_CONTEXT:,} tokens and more. With localspec.overflow = "cut" a chat drops its oldest turns, '
    "never the last."
)
"""some clients recognise a prompt that is too long by words of this text, and compact it"""


def context_numbers(error: LocalspecError) -> dict[str, int]:
    """Return llama.cpp's ``n_prompt_tokens`` and ``n_ctx`` for a prompt that is too long, else nothing."""
    if "prompt_tokens" not in error.details:
        return {}
    return {"n_prompt_tokens": int(error.details["prompt_tokens"]), "n_ctx": int(error.details["n_ctx"])}


def sentence(error: LocalspecError) -> str:
    """Return an error's message and remedy as one text, without advice for users of the command line."""
    if context_numbers(error):
        has, _, _ = error.message.partition(",")
        return CONTEXT.format(has=has, remedy=error.remedy, **error.details)
    remedy = DAEMON_REMEDY if isinstance(error, DaemonUnavailable) else error.remedy
    if error.code == ModelNotFound.code:
        remedy = f"{remedy} {ANY_MODEL}"
    if remedy == InvalidOptions.default_remedy:
        remedy = REMEDY
    end = "" if error.message.endswith(("?", ".")) else "."
    return f"{error.message}{end} {remedy}"
