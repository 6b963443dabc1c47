"""What takes a while to find, and is asked for at every key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Looked for once at a time, however many wait for it; what was found counts for ``fresh_s``."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._search: asyncio.Future[T] | None = None
        self._begun = 0.0

    async def get(self, find: Callable[[], Awaitable[T]]) -> T:
        """What ``find`` has found lately, or finds now. Who waits no longer does not end the search."""
        search = self._search
        if search is None or (search.done() and not self._counts(search)):
            self._begun = time.monotonic()
            self._search = search = asyncio.ensure_future(find())
        return await asyncio.shield(search)

    def _counts(self, search: asyncio.Future[T]) -> bool:
        is_fresh = time.monotonic() - self._begun <= self._fresh_s
        return is_fresh and not search.cancelled() and search.exception() is None
