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


async def pieces(streams: Sequence[Stream[Result]]) -> AsyncIterator[Piece]:
    """Return the pieces of all answers as they come, the progress of their prompts among them.

    See :func:`begun` for errors; an answer that is still queued delays none of the others.
    """
    return await begun(_merged(streams))


async def events(stream: Stream[Result]) -> AsyncIterator[Event]:
    """The text of an answer, and the progress of its prompt from when that is accepted on."""
    async for event in stream.events():
        if isinstance(event, StreamDelta) or (isinstance(event, StreamProgress) and event.total):
            yield event


async def _feed(queue: Queue, number: int, stream: Stream[Result]) -> None:
    try:
        async for event in events(stream):
            queue.put_nowait(Piece(number, event))
        queue.put_nowait(Piece(number, await stream.result()))
    except Exception as error:
        # Any error is raised where the pieces are read.
        queue.put_nowait(error)


async def _merged(streams: Sequence[Stream[Result]]) -> AsyncIterator[Piece]:
    queue: Queue = asyncio.Queue()
    tasks = [asyncio.create_task(_feed(queue, i, stream)) for i, stream in enumerate(streams)]
    left = len(tasks)
    try:
        while left:
            piece = await queue.get()
            if isinstance(piece, BaseException):
                raise piece
            yield piece
            left -= isinstance(piece.event, Result)
    finally:
        for task in tasks:
            task.cancel()
