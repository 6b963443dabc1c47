"""A dialect: its addresses, and how it says things."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from localspec.errors import DaemonUnavailable, LocalspecError
from localspec.http.endpoint import Endpoint

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
    """``error`` shapes what went wrong; ``framing`` is that of answers which come as they are made."""

    name: str
    endpoints: tuple[Endpoint, ...]
    error: Callable[[LocalspecError, HTTPStatus], Any]
    framing: Framing


def sentence(error: LocalspecError) -> str:
    """What happened, and what to do; without the advice for who has typed a command."""
    remedy = DAEMON_REMEDY if isinstance(error, DaemonUnavailable) else error.remedy
    end = "" if error.message.endswith(("?", ".")) else "."
    return f"{error.message}{end} {remedy}"
