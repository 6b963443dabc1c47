"""One address of the door: its body is read and checked, its handler asks the daemon, and for who hangs up
nothing goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from localspec.client import Client, connect
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol.options import readable

MAX_BODY = 4 << 20
"""bytes; the daemon takes no longer messages"""
BODY_S = 30.0
WHOLE = 2.0**53
"""from here on a float is one of several whole numbers"""
REMEDY = "See /openapi.json for what is taken."

T = TypeVar("T")

Answer = Any
"""the content of a response: a JSON value, a :class:`Plain` text, or an :class:`AsyncIterator` of JSON values
that are sent as they come"""


class Plain(NamedTuple):
    """An answer that is no JSON."""

    text: str
    media_type: str
    headers: Mapping[str, str]


class Nothing(msgspec.Struct):
    """No body."""


class Endpoint(NamedTuple):
    """``handler`` is given the ``body``, and a connection to the daemon of its own; ``open``: to everybody on
    this machine."""

    method: Literal["GET", "POST"]
    path: str
    body: type[msgspec.Struct]
    handler: Callable[[Client, Any], Awaitable[Answer]]
    open: bool = False


class TooSlow(LocalspecError):
    """A request that does not come."""

    code = "too_slow"
    default_remedy = "Send it in one go."


class BodyTooLarge(LocalspecError):
    """More than is taken."""

    code = "body_too_large"
    default_remedy = f"Send at most {MAX_BODY >> 20} MiB."


async def body_of(endpoint: Endpoint, request: Request) -> msgspec.Struct:
    """What was sent, checked; where nothing is, what the address itself says.

    Raises :class:`InvalidOptions` for what is not JSON, or not what is taken, :class:`BodyTooLarge`,
    :class:`TooSlow`, and :class:`ClientDisconnect` for who has hung up.
    """
    if endpoint.method == "GET":
        return endpoint.body(**request.path_params)
    try:
        async with asyncio.timeout(BODY_S):
            return await _read(endpoint.body, request)
    except TimeoutError:
        raise TooSlow(f"the body did not come within {BODY_S} s") from None


async def answered(work: Callable[[Client], Awaitable[Answer]], request: Request) -> tuple[Answer, Client]:
    """The answer, and the connection that is to be closed once it was sent.

    Raises :class:`LocalspecError`, and :class:`ClientDisconnect` for who has hung up.
    """
    client = await connect(start=False, name="http")
    try:
        return await _unless_gone(request, work(client)), client
    except BaseException:
        await client.close()
        raise


async def begun(pieces: AsyncIterator[T]) -> AsyncIterator[T]:
    """The pieces of an answer, once the first is there: what fails before has a status of its own."""
    first = await anext(pieces, None)

    async def all_of_it() -> AsyncIterator[T]:
        if first is not None:
            yield first
        async for piece in pieces:
            yield piece

    return all_of_it()


async def each(values: list[Any]) -> AsyncIterator[Any]:
    """What is known whole, for who wants it piece by piece."""
    for value in values:
        yield value


async def _read(struct: type[T], request: Request) -> T:
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > MAX_BODY:
            raise BodyTooLarge(f"the body is longer than {MAX_BODY} bytes")
    if not read:
        raise InvalidOptions("the body is empty", REMEDY)
    try:
        return msgspec.convert(_whole(msgspec.json.decode(read)), struct)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"the body is not what is taken here: {readable(error)}", REMEDY) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"the body is not JSON: {error}", REMEDY) from None


def _whole(value: Any) -> Any:
    """The same with whole numbers as such: some programs write all of theirs with a point."""
    match value:
        case float() if value.is_integer() and abs(value) < WHOLE:
            return int(value)
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {key: _whole(each) for key, each in value.items()}
    return value


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Do the work, but not for who has hung up."""
    task, gone = asyncio.ensure_future(work), asyncio.create_task(_hung_up(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        await _ended(gone)
        await _ended(task)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _ended(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
