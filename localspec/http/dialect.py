"""A dialect: its addresses, and how it says things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from localspec.errors import AGENT_CONTEXT, DaemonUnavailable, LocalspecError
from localspec.http.endpoint import Endpoint

STATUS = {
    "invalid_options": HTTPStatus.BAD_REQUEST,
    "context_exceeded": HTTPStatus.BAD_REQUEST,
    "fim_unsupported": HTTPStatus.BAD_REQUEST,
    "model_ambiguous": HTTPStatus.BAD_REQUEST,
    "model_invalid": HTTPStatus.BAD_REQUEST,
    "model_too_large": HTTPStatus.BAD_REQUEST,
    "tokenizer_mismatch": HTTPStatus.BAD_REQUEST,
    "model_not_found": HTTPStatus.NOT_FOUND,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_slow": HTTPStatus.REQUEST_TIMEOUT,
    "queue_full": HTTPStatus.TOO_MANY_REQUESTS,
    "engine_busy": HTTPStatus.TOO_MANY_REQUESTS,
}
"""by the error's code; all others are no fault of who asks, and may be gone the next time (503)"""

DAEMON_REMEDY = "See `localspec daemon status`, and try again."


class Framing(NamedTuple):
    """How one of many values is sent, and what is sent in the end."""

    media_type: str
    before: bytes
    after: bytes
    end: bytes

    def frame(self, value: Any) -> bytes:
        """One value."""
        return self.before + msgspec.json.encode(value) + self.after


SSE = Framing("text/event-stream", b"data: ", b"\n\n", b"data: [DONE]\n\n")
NDJSON = Framing("application/x-ndjson", b"", b"\n", b"")


class Dialect(NamedTuple):
    """``error`` shapes what went wrong, ``statuses`` are those that differ from :data:`STATUS`;
    ``framing`` is that of answers which come as they are made."""

    name: str
    endpoints: tuple[Endpoint, ...]
    error: Callable[[LocalspecError, HTTPStatus], Any]
    framing: Framing
    statuses: Mapping[str, HTTPStatus] = MappingProxyType({})

    def status(self, error: LocalspecError) -> HTTPStatus:
        """What HTTP calls it."""
        return self.statuses.get(error.code) or STATUS.get(error.code, HTTPStatus.SERVICE_UNAVAILABLE)


CONTEXT = (
    "{has}: that exceeds the available context size, the maximum context "
    "length, of {n_ctx} tokens. Shorten it, or enlarge the context: `localspec config set n_ctx N`; agents "
    f'need {AGENT_CONTEXT:,} tokens and more. With localspec.overflow = "cut" a chat drops its oldest turns, '
    "never the last."
)
"""clients know a prompt that is too long, and compact it, by some of these words"""


def context_numbers(error: LocalspecError) -> dict[str, int]:
    """``n_prompt_tokens`` and ``n_ctx`` of a prompt that is too long, as llama.cpp's server names them."""
    if "prompt_tokens" not in error.details:
        return {}
    return {
        "n_prompt_tokens": int(error.details["prompt_tokens"]),
        "n_ctx": int(error.details["n_ctx"]),
    }


def sentence(error: LocalspecError) -> str:
    """What happened, and what to do; without the advice for who has typed a command."""
    if context_numbers(error):
        has, _, _ = error.message.partition(",")
        return CONTEXT.format(has=has, **error.details)
    remedy = DAEMON_REMEDY if isinstance(error, DaemonUnavailable) else error.remedy
    end = "" if error.message.endswith(("?", ".")) else "."
    return f"{error.message}{end} {remedy}"
