"""One HTTP request: read and check its body, run its handler, cancel its work when the client disconnects."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from localspec.client import Client
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol.options import readable
from localspec.protocol.requests import whole_characters

MAX_BODY = 4 << 20
"""bytes, as many as the daemon accepts in one message"""
MOST_COMMAS = 300_000
"""between the values of a body, or in its texts: all threads wait while so many values are decoded, 17 ms"""
MOST_VALUES = 30_000
"""texts, lists, objects and their keys in a body, which dialects and templates walk in the event loop"""
WHOLE = 2.0**53
"""from here on a float no longer stands for one whole number"""
BODY_S = 30.0
SILENCE_S = 5.0
"""seconds without a piece until a stream's head is sent, and between signs of life; clients wait for 10"""
SHORTER = "Send fewer values, or a shorter text."
REMEDY = "Send a JSON object with the fields of the dialect, in their types."

T = TypeVar("T")

Refused = Mapping[str, "tuple[Any, ...] | Refused"]
"""fields of a body, or of the objects in it, that are refused, with the values that change nothing: -1 stands
for every negative number"""
Connect = Callable[[], Client]
Answer = Any
"""a response, or its content: a JSON value, or an :class:`AsyncGenerator` of JSON values that are sent as
they come, and of None where a sign of life is due"""


class Endpoint(NamedTuple):
    """A path and method; ``handler`` gets a client of the daemon and the checked ``body``, without
    the fields ``refused``. ``open`` is True if no token is needed; there is no client then."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    body: type[msgspec.Struct]
    handler: Callable[[Any, Any], Awaitable[Answer]]
    refused: Refused = MappingProxyType({})
    open: bool = False


class PathId(msgspec.Struct):
    id: str


class SlowBody(LocalspecError):
    code = "too_slow"
    default_remedy = "Send the whole body at once."


class BodyTooLarge(LocalspecError):
    """A body longer than :data:`MAX_BODY`, or of too many values."""

    code = "body_too_large"
    default_remedy = f"Send at most {MAX_BODY >> 20} MiB."


async def body_of(endpoint: Endpoint, request: Request) -> msgspec.Struct:
    """Return a request's checked body; that of GET and DELETE is made of its path. Raises
    :class:`InvalidOptions` for a body that is not JSON or does not match its schema, :class:`BodyTooLarge`,
    :class:`SlowBody`, and :class:`ClientDisconnect` if the client has disconnected."""
    if endpoint.method != "POST":
        return endpoint.body(**request.path_params)
    try:
        async with asyncio.timeout(BODY_S):
            return await _read(endpoint, request)
    except TimeoutError:
        raise SlowBody(f"the body did not arrive within {BODY_S:g} s") from None


async def run_while_connected(request: Request, work: Awaitable[T]) -> T:
    """Await ``work``; cancel it and raise :class:`ClientDisconnect` if the client disconnects."""
    task, gone = asyncio.ensure_future(work), asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        await _cancel_task(gone)
        await _cancel_task(task)


async def each(values: list[Any]) -> AsyncGenerator[Any]:
    """Yield the values of an answer that is complete, as the pieces of a stream."""
    for value in values:
        yield value


async def _read(endpoint: Endpoint, request: Request) -> msgspec.Struct:
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > MAX_BODY:
            raise BodyTooLarge(f"the request body is longer than {MAX_BODY} bytes")
    if not read:
        raise InvalidOptions("the request body is empty", REMEDY)
    if (commas := read.count(b",")) > MOST_COMMAS:
        raise BodyTooLarge(f"the request body has {commas} commas, {MOST_COMMAS} are possible", SHORTER)
    gc.disable()  # collections would walk the new values again and again: 0.4 s for the most
    try:
        body = _json(read)
        _check_size(body)
        refuse(body, endpoint.refused)
        try:
            return msgspec.convert(body, endpoint.body, str_keys=True)
        except msgspec.ValidationError:
            return msgspec.convert(_make_whole(body), endpoint.body, str_keys=True)
    except msgspec.ValidationError as error:
        raise InvalidOptions(f"the request body is invalid: {readable(error)}", REMEDY) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"the request body is not JSON: {error}", REMEDY) from None
    finally:
        gc.enable()


def _json(read: bytearray) -> Any:
    try:
        return msgspec.json.decode(read)
    except msgspec.DecodeError:  # half of a surrogate pair is one, too
        return msgspec.json.decode(whole_characters(read.decode()))


def _check_size(body: Any) -> None:
    """Raise :class:`BodyTooLarge` for more than :data:`MOST_VALUES`, before anything else walks them."""
    left, waiting = MOST_VALUES, list[Any]([[body]])
    while waiting and left >= 0:
        value = waiting.pop()
        left -= 1 + (len(value) if isinstance(value, dict) else 0)
        if not isinstance(value, str):
            values = value.values() if isinstance(value, dict) else value
            waiting += [each for each in values if isinstance(each, str | list | dict)]
    if left < 0:
        what = f"the request body has more than {MOST_VALUES} texts, lists, objects and keys"
        raise BodyTooLarge(what, SHORTER)


def _make_whole(value: Any) -> Any:
    """Return a value with its whole floats as integers: some clients write all numbers with a point."""
    if isinstance(value, dict):
        return {key: _make_whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_make_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE else value


def refuse(body: Any, fields: Refused) -> None:
    """Raise :class:`InvalidOptions` if one of ``fields`` is set to a value other than the harmless ones:
    ignoring it would give another answer than the one requested."""
    for each in body if isinstance(body, list) else [body]:
        given = {name: each[name] for name in fields if name in each} if isinstance(each, dict) else {}
        for name, value in given.items():
            harmless = fields[name]
            if isinstance(harmless, Mapping):
                refuse(value, harmless)
            elif value is not None and not any(_is_same(value, other) for other in harmless):
                others = " or ".join(msgspec.json.encode(other).decode() for other in harmless)
                instead = f", or set it to {others}" if others else ""
                raise InvalidOptions(f"{name} is not supported", f"Leave {name} out{instead}.")


def _is_same(value: Any, other: Any) -> bool:
    """Compare two JSON values; a number is not a truth value, and all negative numbers are -1."""
    if isinstance(value, bool) != isinstance(other, bool):
        return False
    return bool(value == other) or (other == -1 and isinstance(value, int | float) and value < 0)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancel_task(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
