"""The answers that can be picked up again: those that run, and for a while those that have ended."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from localspec.errors import Gone
from localspec.protocol.results import Result

MOST_ENDED = 64
"""streams that are kept after their end"""


class Kept(Protocol):
    """A stream, as far as keeping it goes."""

    id: str
    session: str | None
    message: int | None
    followed: bool
    task: asyncio.Task[Result]

    def cancel(self) -> None: ...


S = TypeVar("S", bound=Kept)


class Streams(Generic[S]):
    """The streams that can be picked up: those that run, and for ``grace`` seconds those that have ended."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.running: set[S] = set()
        self._known: dict[str, S] = {}
        self._ended: dict[str, asyncio.TimerHandle] = {}

    def add(self, stream: S) -> None:
        """``stream`` begins."""
        self._known[stream.id] = stream
        self.running.add(stream)

    def find(self, id: str) -> S:
        """The stream of this id; raises :class:`Gone`."""
        if (stream := self._known.get(id)) is None:
            raise Gone("the stream is unknown, or has ended too long ago", "Read the session instead.")
        return stream

    def unfollowed(self, session: str) -> dict[int, str]:
        """The streams of answers that are given in ``session`` to nobody, by the number of the message."""
        streams = (each for each in self.running if each.session == session and not each.followed)
        return {each.message: each.id for each in streams if each.message is not None}

    async def end(self, session: str) -> None:
        """Cancel what is answered in ``session``, wait for its end, and forget what was said."""
        of_session = [stream for stream in self._known.values() if stream.session == session]
        await self._cancel([stream for stream in self.running if stream.session == session])
        for stream in of_session:
            self.drop(stream)

    async def close(self) -> None:
        """Cancel every stream and wait for the ends."""
        await self._cancel(list(self.running))
        for timer in self._ended.values():
            timer.cancel()

    async def _cancel(self, streams: list[S]) -> None:
        for stream in streams:
            stream.cancel()
        if streams:
            await asyncio.wait([stream.task for stream in streams])

    def on_end(self, stream: S) -> None:
        """``stream`` has ended: whoever missed that may still come for a while."""
        self.running.discard(stream)
        if stream.id not in self._known:
            return
        if not self.grace:
            self.drop(stream)
            return
        loop = asyncio.get_running_loop()
        self._ended[stream.id] = loop.call_later(self.grace, self.drop, stream)
        if len(self._ended) > MOST_ENDED:
            self.drop(self._known[next(iter(self._ended))])

    def drop(self, stream: S) -> None:
        """Nobody can pick ``stream`` up any more."""
        self._known.pop(stream.id, None)
        if (timer := self._ended.pop(stream.id, None)) is not None:
            timer.cancel()
