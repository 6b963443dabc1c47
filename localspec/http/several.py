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
    """The pieces of all answers as they come, once the first of each is there: what fails before has a status
    of its own."""
    began = await asyncio.gather(*map(begun, streams))

    async def one() -> AsyncIterator[Piece]:
        async for delta in began[0]:
            yield Piece(0, delta)
        yield Piece(0, await streams[0].result())

    return one() if len(streams) == 1 else _merged(streams, began)


async def _merged(
    streams: Sequence[Stream[Result]], began: Sequence[AsyncIterator[StreamDelta]]
) -> AsyncIterator[Piece]:
    queue: asyncio.Queue[Piece | BaseException] = asyncio.Queue()

    async def feed(index: int) -> None:
        try:
            async for delta in began[index]:
                queue.put_nowait(Piece(index, delta))
            queue.put_nowait(Piece(index, await streams[index].result()))
        except Exception as error:
            # Whatever it is, it is raised where the pieces are read.
            queue.put_nowait(error)

    tasks = [asyncio.create_task(feed(index)) for index in range(len(streams))]
    left = len(streams)
    try:
        while left:
            piece = await queue.get()
            if isinstance(piece, BaseException):
                raise piece
            yield piece
            left -= isinstance(piece.said, Result)
    finally:
        for task in tasks:
            task.cancel()
