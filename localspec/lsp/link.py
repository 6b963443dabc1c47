"""The connection to the daemon, made again at the first request after it was lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.client import Client

PAUSES_S = (0, 1, 2, 5, 10, 30)
"""seconds after each failure in a row; then always the last"""


class Link:
    """Provides a connected client."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self._failures = 0
        self.failure: LocalspecError | None = None
        """error of the last attempt to connect, if it failed"""
        self._again_at = 0.0

    @property
    def connected(self) -> Client | None:
        """The client, if it is connected."""
        return None if self._client is None or self._client.lost else self._client

    async def client(self, *, at_once: bool = False) -> Client:
        """Return a connected client; starts the daemon if necessary.

        Raises the errors of connecting; within a pause after a failure the same again, unless ``at_once``.
        """
        if self.connected is not None:
            return self.connected
        if self._connecting is None:
            now = asyncio.get_running_loop().time()
            if self.failure is not None and now < self._again_at and not at_once:
                raise self.failure
            self._connecting = asyncio.create_task(self._connect())
        # Shielded: a caller may be cancelled while others wait for the same connection.
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Client:
        # Imported late: the editor's first request does not wait for it.
        from localspec.client import connect

        try:
            if self._client is not None:
                await self._client.close()  # lost, but not closed yet
            self._client = await connect(name="localspec lsp")
        except LocalspecError as error:
            pause = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
            self._again_at = asyncio.get_running_loop().time() + pause
            self._failures += 1
            self.failure = error
            raise
        finally:
            self._connecting = None
        self._failures, self.failure = 0, None
        return self._client

    async def close(self) -> None:
        """Close the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._client is not None:
            await self._client.close()
