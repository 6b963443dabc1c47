"""Facts of a chat and its connection: the messages from the code that talks to the daemon to the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual.message import Message

from localspec.errors import LocalspecError
from localspec.protocol.requests import SessionEvent


class Connected(Message):
    """A daemon is connected."""


class ConnectionLost(Message):
    """The connection is lost; the next request makes a new one."""


@dataclass
class Touched(Message):
    """A stored chat has changed, by this program or another one."""

    event: SessionEvent


class Paired(Message):
    """A model and its proposer are ready."""


@dataclass
class Working(Message):
    """Work in progress; ``fraction`` of it is done, 0 to 1, None if unknown."""

    label: str
    fraction: float | None


@dataclass
class Changed(Message):
    """The messages have changed; ``keeping`` the scroll position, as without an act of the user."""

    keeping: bool = False


@dataclass
class Configured(Message):
    """The user has set these options of a chat."""

    changed: dict[str, Any]


@dataclass
class Grown(Message):
    """The last answer has grown, which is sent several times a second, or ``ended``."""

    ended: bool = False


@dataclass
class RequestFailed(Message):
    """A request of the user, or a part of its work, has failed."""

    error: LocalspecError
