"""Turn-taking: a session answers one message at a time, the next waits."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from localspec.daemon.chats.store import Session


class Turns:
    """A lock per session, kept while it is held or awaited."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, session: Session) -> asyncio.Lock:
        """The lock of a session."""
        return self._locks.setdefault(session.id, asyncio.Lock())
