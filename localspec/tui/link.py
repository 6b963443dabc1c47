"""The way to the daemon: one connection, made again when it was lost and something is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from textual.message import Message

from localspec.errors import DaemonUnavailable, LocalspecError
from localspec.protocol.events import SessionEvent
from localspec.tui.facts import Connected, ConnectionLost, Touched, Working

if TYPE_CHECKING:
    from localspec.client import Client

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0

T = TypeVar("T")


class Link:
    """Gives a client that is connected; ``tell`` hears what becomes of the connection."""

    def __init__(self, tell: Callable[[Message], object]) -> None:
        self._tell = tell
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._again = False
        self._watch: asyncio.Task[None] | None = None

    async def client(self) -> Client:
        """A client; one that was lost is replaced, starting the daemon if need be.

        Raises what connecting fails with, of a daemon that was there before only after several tries.
        """
        async with self._connecting:
            if self._client is None or self._client.lost:
                self._client = await self._connect()
                self._watch = asyncio.create_task(self._follow(self._client))
            return self._client

    async def ask(self, what: Callable[[Client], Awaitable[T]]) -> T:
        """Do what may be done twice: again, where the daemon is lost meanwhile."""
        client = await self.client()
        try:
            return await what(client)
        except DaemonUnavailable:
            if not client.lost:
                raise
            return await what(await self.client())

    @property
    def connected(self) -> bool:
        """Whether a daemon answers now."""
        return self._client is not None and not self._client.lost

    async def close(self) -> None:
        """Close the connection."""
        if self._watch is not None:
            self._watch.cancel()
        if self._client is not None:
            await self._client.close()

    async def _follow(self, client: Client) -> None:
        """Tell what happens to chats, and the connection's end."""
        with contextlib.suppress(LocalspecError):
            async for event in await client.subscribe("session"):
                if isinstance(event, SessionEvent):
                    self._tell(Touched(event))
        await client.ended()
        self._tell(ConnectionLost())

    async def _connect(self) -> Client:
        # A connection costs imports that the first picture need not wait for.
        from localspec.client import connect

        pause = FIRST_PAUSE_S
        while True:
            try:
                client = await connect(name="localspec chat", on_start=self._starting)
            except DaemonUnavailable:
                if not self._again or pause > LONGEST_PAUSE_S:
                    raise
                await asyncio.sleep(pause)
                pause *= 2
            else:
                self._tell(Connected(self._again))
                self._again = True
                return client

    def _starting(self) -> None:
        self._tell(Working("starting the daemon", None))
