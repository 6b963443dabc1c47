"""Several answers to one request, on one connection to the daemon: whole, or as their pieces come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from localspec.client import Stream
from localspec.http.endpoint import begun
from localspec.protocol.messages import StreamDelta, StreamProgress
from localspec.protocol.options import Options
from localspec.protocol.results import Result, Token

SEEDS = 2**63


class Answered(NamedTuple):
    """A complete answer."""

    tokens: list[Token]
    result: Result


Event = StreamDelta | StreamProgress


class Piece(NamedTuple):
    """An event of the answer ``number``: a piece of text, the progress of its prompt, or its result."""

    number: int
    event: Event | Result


Queue = asyncio.Queue[Piece | BaseException]


def varied(options: Options, count: int) -> list[Options]:
    """Return options for ``count`` answers to one prompt, each with another seed if one is set."""
    if options.seed is None:
        return [options] * count
    return [replace(options, seed=(options.seed + i) % SEEDS) for i in range(count)]


async def whole(streams: Iterable[Stream[Result]]) -> list[Answered]:
    """Return all answers once all are complete."""
    return await asyncio.gather(*map(_whole, streams))


async def _whole(stream: Stream[Result]) -> Answered:
    tokens = [token async for delta in stream for token in delta.tokens]
    return Answered(tokens, await stream.result())


async def pieces(streams: Sequence[Stream[Result]], *, progress: bool | None = False) -> AsyncIterator[Piece]:
    """Await the first piece of any answer, then return the pieces of all as they come.

    An error before the first piece gets an HTTP status of its own; an answer that is still queued delays none
    of the others. With ``progress``, the progress of long prompts is among the pieces.
    """
    if len(streams) == 1:
        return _only(streams[0], await begun(_events(streams[0], progress)))
    queue: Queue = asyncio.Queue()
    tasks = [asyncio.create_task(_feed(queue, i, stream, progress)) for i, stream in enumerate(streams)]
    try:
        first = await queue.get()
        if isinstance(first, BaseException):
            raise first
    except BaseException:
        _cancel(tasks)
        raise
    return _merged(first, queue, tasks)


async def _events(stream: Stream[Result], progress: bool | None) -> AsyncIterator[Event]:
    async for event in stream.events() if progress else stream:
        if isinstance(event, StreamDelta) or (isinstance(event, StreamProgress) and event.total):
            yield event


async def _only(stream: Stream[Result], events: AsyncIterator[Event]) -> AsyncIterator[Piece]:
    async for event in events:
        yield Piece(0, event)
    yield Piece(0, await stream.result())


async def _feed(queue: Queue, number: int, stream: Stream[Result], progress: bool | None) -> None:
    try:
        async for event in _events(stream, progress):
            queue.put_nowait(Piece(number, event))
        queue.put_nowait(Piece(number, await stream.result()))
    except Exception as error:
        # Any error is raised where the pieces are read.
        queue.put_nowait(error)


async def _merged(first: Piece, queue: Queue, tasks: Sequence[asyncio.Task[None]]) -> AsyncIterator[Piece]:
    left = len(tasks)
    piece: Piece | BaseException = first
    try:
        while True:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
            left -= isinstance(piece.event, Result)
            if not left:
                return
            piece = await queue.get()
    finally:
        _cancel(tasks)


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
