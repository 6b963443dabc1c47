"""The connection to the daemon, made again at the first request after it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from textual.message import Message

from localspec.client import Client, connect
from localspec.errors import DaemonUnavailable, LocalspecError
from localspec.tui.facts import Connected, ConnectionLost, Touched, Working

T = TypeVar("T")


class DaemonLink:
    """Provides a connected client; ``report`` is called with facts about the connection."""

    def __init__(self, report: Callable[[Message], object]) -> None:
        self._report = report
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    async def client(self) -> Client:
        """Return a connected client; starts the daemon if necessary. Raises the errors of connecting."""
        async with self._connecting:
            if self._client is None or self._client.lost:
                try:
                    self._client = await connect(name="localspec chat", on_start=self._starting)
                except BaseException:  # also a cancellation, when something else is typed meanwhile
                    self._report(ConnectionLost())
                    raise
                self._report(Connected())
                self._watch = asyncio.create_task(self._follow(self._client))
            return self._client

    async def ask(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Return the result of an idempotent call; it is repeated once if the daemon is lost meanwhile."""
        client = await self.client()
        try:
            return await call(client)
        except DaemonUnavailable:
            if not client.lost:
                raise
            return await call(await self.client())

    @property
    def connected(self) -> bool:
        return self._client is not None and not self._client.lost

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._client is not None:
            await self._client.close()

    async def _follow(self, client: Client) -> None:
        with contextlib.suppress(LocalspecError):
            async for event in await client.subscribe():
                self._report(Touched(event))
        await client.wait_closed()
        self._report(ConnectionLost())

    def _starting(self, why: str) -> None:
        self._report(Working(f"restarting the daemon: {why}" if why else "starting the daemon", None))
