"""The streams that can be resumed: those that run, and for a while those that have ended."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from localspec.errors import Gone
from localspec.protocol.results import Result

MOST_ENDED = 64
"""ended streams that are kept at most"""


class Kept(Protocol):
    """The part of a stream that its registry needs."""

    id: str
    session: str | None
    message: int | None
    task: asyncio.Task[Result]

    @property
    def followed(self) -> bool: ...
    def cancel(self) -> None: ...


S = TypeVar("S", bound=Kept)


class Streams(Generic[S]):
    """A registry of streams: those that run, and for ``grace`` seconds those that have ended.

    ``busy`` is the set of work that needs a model, which a running stream is part of.
    """

    def __init__(self, grace: float, busy: set[object]) -> None:
        self.grace = grace
        self._busy = busy
        self.running: set[S] = set()
        self._known: dict[str, S] = {}
        self._ended: dict[str, asyncio.TimerHandle] = {}

    def add(self, stream: S, request: object) -> None:
        """Register ``stream``, which takes the place of its ``request`` among the busy."""
        self._busy.discard(request)
        self._busy.add(stream)
        self._known[stream.id] = stream
        self.running.add(stream)

    def find(self, id: str) -> S:
        """The stream of this id; raises :class:`Gone`."""
        if (stream := self._known.get(id)) is None:
            raise Gone(f"the stream {id[:40]!r} does not exist, or is no longer kept after its end")
        return stream

    def unfollowed(self, session: str) -> dict[int, str]:
        """The ids of the running streams of ``session`` without a follower, by their answer's message id."""
        streams = (each for each in self.running if each.session == session and not each.followed)
        return {each.message: each.id for each in streams if each.message is not None}

    async def end(self, session: str) -> None:
        """Cancel the streams of ``session``, wait for their ends, and drop them."""
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
        """Keep an ended ``stream`` for a while: a client that missed the end may resume it."""
        self._busy.discard(stream)
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
        """Forget ``stream``: it cannot be resumed any more."""
        self._known.pop(stream.id, None)
        if (timer := self._ended.pop(stream.id, None)) is not None:
            timer.cancel()
