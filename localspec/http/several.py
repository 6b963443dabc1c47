"""Several answers to one request, on one connection: all at once, or as their pieces come."""

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
    """A whole answer."""

    tokens: list[Token]
    result: Result


Said = StreamDelta | StreamProgress


class Piece(NamedTuple):
    """A piece of the answer ``number``, how far its prompt is read, or the end of it."""

    number: int
    said: Said | Result


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


async def pieces(streams: Sequence[Stream[Result]], *, progress: bool | None = False) -> AsyncIterator[Piece]:
    """The pieces of all answers as they come, once the first of any is there: what fails before has a status
    of its own, and an answer that waits for its turn holds up none of the others. With ``progress``, how far
    a long prompt is read is a piece, too."""
    if len(streams) == 1:
        return _only(streams[0], await begun(_said(streams[0], progress)))
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


async def _said(stream: Stream[Result], progress: bool | None) -> AsyncIterator[Said]:
    async for event in stream.events() if progress else stream:
        if isinstance(event, StreamDelta) or (isinstance(event, StreamProgress) and event.total):
            yield event


async def _only(stream: Stream[Result], began: AsyncIterator[Said]) -> AsyncIterator[Piece]:
    async for delta in began:
        yield Piece(0, delta)
    yield Piece(0, await stream.result())


async def _feed(queue: Queue, number: int, stream: Stream[Result], progress: bool | None) -> None:
    try:
        async for said in _said(stream, progress):
            queue.put_nowait(Piece(number, said))
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
