"""What happened, as the chat tells it: the one vocabulary between what talks to the daemon and the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual.message import Message

from localspec.errors import LocalspecError
from localspec.protocol.events import SessionEvent
from localspec.protocol.sessions import Pairing


@dataclass
class Connected(Message):
    """A daemon answers; ``again``: after another one, or this one, was lost."""

    again: bool


@dataclass
class ConnectionLost(Message):
    """The daemon is gone; another connection is made when something is asked."""


@dataclass
class Touched(Message):
    """Something happened to a stored chat, here or in another program."""

    event: SessionEvent


@dataclass
class Paired(Message):
    """A model, and what drafts for it, are ready."""

    pairing: Pairing


@dataclass
class Working(Message):
    """Something goes on that takes a while; ``fraction`` of it is done, None: nobody knows."""

    what: str
    fraction: float | None


@dataclass
class Changed(Message):
    """The messages are others than before: more, fewer, or changed, be it by another program."""

    elsewhere: bool = False


@dataclass
class Configured(Message):
    """The person has set these options of a chat."""

    changed: dict[str, Any]


@dataclass
class Grown(Message):
    """The last answer has grown, several times a second."""


@dataclass
class Ended(Message):
    """The last answer has ended."""


@dataclass
class Failed(Message):
    """Something that was asked for could not be done."""

    error: LocalspecError


@dataclass
class Done(Message):
    """Something that was asked for is done, and can be told in a sentence."""

    what: str
