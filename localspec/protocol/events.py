"""Events: those of a request, from the engine to the client, and those that a client subscribes to.

The engine makes a request's events. A worker sends each of them, until the end, as the params of the
notification that belongs to it, which the daemon passes on.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from localspec.protocol.jsonrpc import Id
from localspec.protocol.results import Result, Token

EventKind = Literal["round", "model", "session"]


Channel = Literal["answer", "thinking", "call"]
"""what a text belongs to: the answer, the thoughts before it, or the arguments of a tool call"""


class CallBegun(msgspec.Struct, frozen=True):
    """The tool call that a delta's text belongs to: its position in the answer, its id and its tool."""

    index: int
    id: str
    name: str


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """New text of an answer, whole code points only, and the tokens that make it up. Markup around thoughts
    and calls is in no text; its tokens have 0 ``chars``."""

    text: str
    tokens: tuple[Token, ...]
    channel: Channel = "answer"
    call: CallBegun | None = None
    """of the channel ``call``"""


Chunk = Delta
"""its name in the Python API"""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of the prompt: ``total``, of which ``processed`` are in the KV cache, ``cached`` from before."""

    total: int = 0
    cached: int = 0
    processed: int = 0

    @property
    def fraction(self) -> float:
        """The part of the prompt that is in the KV cache, 0 to 1."""
        return self.processed / self.total if self.total else 1.0


class Degraded(msgspec.Struct, frozen=True, rename={"source": "from"}):
    """The proposer ``source`` failed; the request goes on with ``to``."""

    source: str
    to: str
    reason: str


class Round(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="round"):
    """One round of one request: the ``k`` tokens ``proposed``, the number ``accepted`` of them, and the
    ``emitted`` tokens ``chosen``, in ``ms`` milliseconds."""

    round: int
    proposer: str
    k: int
    proposed: tuple[int, ...]
    chosen: tuple[int, ...]
    accepted: int
    emitted: int
    ms: float


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The end of a request."""

    result: Result


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The end of a request with an error; other requests go on."""

    error: dict[str, str]


StreamEvent = Delta | Progress | Degraded | Round
"""an event before the end of its request"""


# Live events.


class RoundEvent(Round, frozen=True, tag_field="kind", tag="round"):
    """A round of a request of this connection. Dropped rather than queued for a client that is slow."""

    request: Id


class ModelEvent(msgspec.Struct, frozen=True, tag_field="kind", tag="model"):
    """A model was loaded or unloaded, or its worker crashed."""

    model: str
    change: Literal["loaded", "unloaded", "crashed"]


SessionChange = Literal["opened", "changed", "renamed", "deleted", "unsaved"]


class SessionEvent(msgspec.Struct, frozen=True, tag_field="kind", tag="session"):
    """A change of a chat: opened, new messages or options, renamed, deleted.

    ``unsaved``: an answer could not be stored. There are no events of private chats.
    """

    session: str
    change: SessionChange


LiveEvent = RoundEvent | ModelEvent | SessionEvent
