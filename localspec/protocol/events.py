"""What happens while it happens: the kinds of ``event`` that a client may subscribe to."""

from __future__ import annotations

from typing import Literal

import msgspec

from localspec.protocol.jsonrpc import Id

EventKind = Literal["round", "model", "session"]


class RoundFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one request: ``k`` tokens were ``proposed``, ``accepted`` of them stood, and the
    ``emitted`` tokens ``chosen`` came out of it in ``ms``."""

    round: int
    proposer: str
    k: int
    proposed: tuple[int, ...]
    chosen: tuple[int, ...]
    accepted: int
    emitted: int
    ms: float


class RoundEvent(RoundFacts, frozen=True, tag_field="kind", tag="round"):
    """A round of a request of this connection. Dropped rather than queued for a client that is slow."""

    request: Id


class ModelEvent(msgspec.Struct, frozen=True, tag_field="kind", tag="model"):
    """A model came or went."""

    model: str
    change: Literal["loaded", "unloaded", "crashed"]


class SessionEvent(msgspec.Struct, frozen=True, tag_field="kind", tag="session"):
    """A chat began, something was said in it or set, it has another title, or it is no more.

    ``unsaved``: an answer could not be stored. Of private chats nothing is told.
    """

    session: str
    change: Literal["opened", "changed", "renamed", "deleted", "unsaved"]


LiveEvent = RoundEvent | ModelEvent | SessionEvent
