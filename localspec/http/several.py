"""Several answers to one request, on one connection: all at once, or as their pieces come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from localspec.client import Stream
from localspec.http.endpoint import begun
from localspec.protocol.messages import StreamDelta
from localspec.protocol.options import Options
from localspec.protocol.results import Result, Token

SEEDS = 2**63


class Answered(NamedTuple):
    """A whole answer."""

    tokens: list[Token]
    result: Result


class Piece(NamedTuple):
    """A piece of the answer ``number``, or the end of it."""

    number: int
    said: StreamDelta | Result


Queue = asyncio.Queue[Piece | BaseException]


def varied(options: Options, count: int) -> list[Options]:
    """Options for so many answers to one prompt: a seed is another one for each, or they would be alike."""
    if options.seed is None:
        return [options] * count
    return [replace(options, seed=(options.seed + i) % SEEDS) for i in range(count)]


async def whole(streams: Iterable[Stream[Result]]) -> list[Answered]:
    """All answers, once all are there."""
    return await asyncio.gather(*map(_whole, streams))


async def _whole(stream: Stream[Result]) -> Answered:
    tokens = [token async for delta in stream for token in delta.tokens]
    return Answered(tokens, await stream.result())


async def pieces(streams: Sequence[Stream[Result]]) -> AsyncIterator[Piece]:
    """The pieces of all answers as they come, once the first of any is there: what fails before has a status
    of its own, and an answer that waits for its turn holds up none of the others."""
    if len(streams) == 1:
        return _only(streams[0], await begun(streams[0]))
    queue: Queue = asyncio.Queue()
    tasks = [asyncio.create_task(_feed(queue, i, stream)) for i, stream in enumerate(streams)]
    try:
        first = await queue.get()
        if isinstance(first, BaseException):
            raise first
    except BaseException:
        _cancel(tasks)
        raise
    return _merged(first, queue, tasks)


async def _only(stream: Stream[Result], began: AsyncIterator[StreamDelta]) -> AsyncIterator[Piece]:
    async for delta in began:
        yield Piece(0, delta)
    yield Piece(0, await stream.result())


async def _feed(queue: Queue, number: int, stream: Stream[Result]) -> None:
    try:
        async for delta in stream:
            queue.put_nowait(Piece(number, delta))
        queue.put_nowait(Piece(number, await stream.result()))
    except Exception as error:
        # Whatever it is, it is raised where the pieces are read.
        queue.put_nowait(error)


async def _merged(first: Piece, queue: Queue, tasks: Sequence[asyncio.Task[None]]) -> AsyncIterator[Piece]:
    left = len(tasks)
    piece: Piece | BaseException = first
    try:
        while True:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
            left -= isinstance(piece.said, Result)
            if not left:
                return
            piece = await queue.get()
    finally:
        _cancel(tasks)


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
