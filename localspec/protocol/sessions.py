"""The chats on the wire: parameters and results of ``session/…``, ``chat/…`` and ``stream/resume``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from localspec.protocol.bounds import Identity, Params
from localspec.protocol.options import Options

Status = Literal["streaming", "complete", "cancelled", "failed"]
MessageId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Content = Annotated[str, Meta(min_length=1)]


class SessionOpen(Params):
    options: Options = Options()
    system: str | None = None
    private: bool = False


class SessionQuery(Params):
    """Sessions with ``query`` in their title or a message, ignoring case; without it, all."""

    query: Annotated[str, Meta(max_length=1000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0


class SessionId(Params):
    session: Identity


class SessionRename(SessionId):
    title: Annotated[str, Meta(min_length=1, max_length=200)]


class SessionConfigure(SessionId):
    """``options`` replace all of the session's."""

    options: Options


class SessionFork(SessionId):
    """Copy up to and including ``message``; without it, all messages."""

    message: MessageId | None = None


class ChatSend(SessionId):
    content: Content
    options: Options = Options()


class ChatEdit(ChatSend, kw_only=True):
    """``content`` replaces the user's ``message``; the messages after it are dropped."""

    message: MessageId


class ChatRegenerate(SessionId):
    """Answer anew: the user's ``message``, or that before the answer ``message``; else the last one."""

    message: MessageId | None = None
    options: Options = Options()


class StreamResume(Params):
    """The deltas after number ``after_seq`` (-1: from the first), and the end."""

    stream: Identity
    after_seq: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1


# Results.


class Pairing(msgspec.Struct, frozen=True):
    """The models and the proposer of a session, and the reason for the choice of the draft model."""

    target: str
    draft: str | None
    proposer: str
    backend: str
    reason: str


class SessionOpened(msgspec.Struct, frozen=True):
    session: str
    pairing: Pairing


class SessionConfigured(msgspec.Struct, frozen=True):
    """``pairing`` is None if model, draft and backend have not changed."""

    pairing: Pairing | None


class SessionForked(msgspec.Struct, frozen=True):
    session: str


class SessionSummary(msgspec.Struct, frozen=True):
    """``created`` and ``updated`` are seconds since 1970."""

    session: str
    title: str
    created: float
    updated: float
    messages: int


class SessionList(msgspec.Struct, frozen=True):
    sessions: tuple[SessionSummary, ...]


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message; ``id`` is never reused, ``created`` is in seconds since 1970. ``stream`` is the id, for
    ``stream/resume``, of an answer that is still generated after its client was lost."""

    id: int
    role: Literal["user", "assistant"]
    content: str
    status: Status
    created: float
    stream: str | None = None


class SessionContent(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    title: str
    options: Options
    system: str | None
    private: bool
    messages: tuple[StoredMessage, ...]
