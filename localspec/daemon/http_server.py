"""The state of the HTTP server, which the daemon serves in its own event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from localspec import home
from localspec.config import Config
from localspec.daemon.relay.socket import Socket
from localspec.errors import LocalspecError

Join = Callable[[Socket], Coroutine[Any, Any, None]]
Serve = Callable[[Config, Join], AbstractAsyncContextManager[str]]
"""serves HTTP while entered and yields its address; raises :class:`DaemonUnavailable`"""


class HttpServer:
    """``url`` while it listens, ``problem`` with the reason why it does not.

    ``flag``: ``--http`` was given, which overrides the settings.
    """

    def __init__(self) -> None:
        self.url: str | None = None
        self.problem: LocalspecError | None = None
        self.flag = False


def leave_open() -> None:
    """Have the next daemon, which replaces one started with ``--http``, start the HTTP server, too."""
    home.left_open_path().touch()


def was_left_open() -> bool:
    """True if this daemon replaces one started with ``--http``; the mark of that is removed."""
    mark = home.left_open_path()
    is_marked = mark.exists()
    mark.unlink(missing_ok=True)
    return is_marked
