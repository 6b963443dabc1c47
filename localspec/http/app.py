"""The application: all dialects behind one gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from localspec.client import Client
from localspec.errors import EngineError, LocalspecError, QueueFull, Unauthorized
from localspec.http import llama_cpp, ollama, openai
from localspec.http.dialect import Dialect
from localspec.http.endpoint import Answer, Endpoint, Plain, answered, body_of
from localspec.http.gate import OWNER, TOKEN_REMEDY, WORK, Gate, Refusal
from localspec.http.models import settle_model
from localspec.http.schema import schema_of
from localspec.http.strangers import confine
from localspec.protocol.options import LONGEST_SHOWN

log = logging.getLogger(__name__)

DIALECTS = (openai.DIALECT, llama_cpp.DIALECT, llama_cpp.CHAT, ollama.DIALECT)
SCHEMA = "/openapi.json"
STRANGERS = 4
"""requests at once at addresses that are open to everybody on this machine; others wait"""
SHARE = 2
"""of so many places at work one more is for those who show no token"""


OF_PATH = {endpoint.path: dialect for dialect in DIALECTS for endpoint in dialect.endpoints}
OPEN = {SCHEMA, *(endpoint.path for dialect in DIALECTS for endpoint in dialect.endpoints if endpoint.open)}


class NothingThere(LocalspecError):
    """There is nothing at that address, or not by that method."""

    code = "unknown_url"


def known_at(path: str) -> Dialect | None:
    """The dialect that has something at a path."""
    return openai.DIALECT if path.startswith(openai.MODELS) else OF_PATH.get(path)


def dialect_at(path: str) -> Dialect:
    """The dialect in which a request at a path is refused."""
    return known_at(path) or (ollama.DIALECT if path.startswith("/api/") else openai.DIALECT)


def not_offered(method: str, path: str) -> NothingThere:
    """Says that nothing answers there, and what does."""
    told = f"{method} {path[:LONGEST_SHOWN]} is not offered"
    if (meant := f"/v1{path}") in OF_PATH:
        return NothingThere(told, f"See {meant}.")
    if path in OF_PATH:
        methods = {each.method for each in OF_PATH[path].endpoints if each.path == path}
        return NothingThere(told, f"It answers to {' and '.join(sorted(methods))}: see {SCHEMA}.")
    offered = [each.path for each in dialect_at(path).endpoints if not each.path.startswith(openai.MODELS)]
    return NothingThere(told, f"In this dialect there are {', '.join(offered)}; {SCHEMA} has all of them.")


def create(
    token: Callable[[], str | None],
    without_token: tuple[str, ...] = (),
    most: int = 32,
    origins: tuple[str, ...] = (),
) -> Starlette:
    """The door, to be opened with what ``token`` reads; the dialects of ``without_token`` are open to all.

    ``most`` requests are at work at once: each has a connection to the daemon, which others need, too. Half
    as many more are those of clients without the token. Pages of ``origins`` are let in with it.
    """
    shared = Rooms(Room(most), Room(max(1, most // SHARE)))
    opened = Rooms(Room(STRANGERS, waits=True), Room(STRANGERS, waits=True))

    def refuse(path: str, error: LocalspecError, status: HTTPStatus) -> Response:
        return _error(dialect_at(path), error, status)

    def strangers(method: str, path: str, is_page: bool) -> Refusal | None:
        dialect = known_at(path)
        if path in OPEN or (dialect is not None and dialect.name in without_token and not is_page):
            return None
        if dialect is None and without_token and not is_page:
            return not_offered(method, path), HTTPStatus.NOT_FOUND
        return Unauthorized("the token is missing or wrong", TOKEN_REMEDY), HTTPStatus.UNAUTHORIZED

    async def lost(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        said = not_offered(request.method, path)
        response = _error(dialect_at(path), said, HTTPStatus(error.status_code))
        response.headers.update(error.headers or {})
        return response

    async def schema(request: Request) -> Response:
        return _json(schema_of(DIALECTS))

    routes = [
        Route(
            endpoint.path,
            Address(dialect, endpoint, opened if endpoint.open else shared),
            methods=[endpoint.method],
        )
        for dialect in DIALECTS
        for endpoint in dialect.endpoints
    ]
    gate = Middleware(Gate, token=token, strangers=strangers, refuse=refuse, origins=origins)
    return Starlette(
        routes=[*routes, Route(SCHEMA, schema)],
        middleware=[gate],
        exception_handlers={HTTPException: lost},
    )


class Room:
    """So many may be inside; others wait for a place, or are refused."""

    def __init__(self, most: int, *, waits: bool = False) -> None:
        self._most = most
        self._places = asyncio.Semaphore(most)
        self._waits = waits

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Inside, there is room for one less. Raises :class:`QueueFull`."""
        if self._places.locked() and not self._waits:
            raise QueueFull(f"{self._most} requests are at work, and the door takes no more at once")
        async with self._places:
            yield


class Rooms(NamedTuple):
    """Separate places for requests with the token, ``owner``, and without it, ``others``."""

    owner: Room
    others: Room


class Address:
    """One endpoint as an application: what is held for a request is let go once its answer was sent, or
    nobody reads it."""

    def __init__(self, dialect: Dialect, endpoint: Endpoint, rooms: Rooms) -> None:
        self._dialect = dialect
        self._endpoint = endpoint
        self._rooms = rooms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as held:
            response = await self._response(Request(scope, receive), held)
            await response(scope, receive, send)

    def _begin(self, request: Request) -> None:
        """Note that the request has a place at work; at an open address there are always some that wait."""
        if not self._endpoint.open and (work := request.scope["state"].get(WORK)) is not None:
            work()

    async def _work(self, request: Request, body: msgspec.Struct, client: Client) -> Answer:
        is_owner = request.scope["state"][OWNER]
        await settle_model(client, body, is_owner=is_owner)
        if not is_owner and not self._endpoint.open:
            confine(body)
        return await self._endpoint.handler(client, body)

    async def _response(self, request: Request, held: AsyncExitStack) -> Response:
        try:
            body = await body_of(self._endpoint, request)
            is_owner = request.scope["state"][OWNER]
            room = self._rooms.owner if is_owner else self._rooms.others
            await held.enter_async_context(room.taken())
            self._begin(request)
            said, client = await answered(partial(self._work, request, body), request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except LocalspecError as error:
            return _error(self._dialect, error, self._dialect.status(error))
        except Exception:
            # Nobody foresaw it: who asked is told so, and the log says where.
            log.exception("%s %s", self._endpoint.method, self._endpoint.path)
            failed = EngineError("the request failed")
            return _error(self._dialect, failed, HTTPStatus.INTERNAL_SERVER_ERROR)
        held.push_async_callback(client.close)
        if isinstance(said, AsyncIterator):
            framing = self._dialect.framing
            return StreamingResponse(_framed(self._dialect, said), media_type=framing.media_type)
        if isinstance(said, Plain):
            return Response(said.text, headers=dict(said.headers), media_type=said.media_type)
        return _json(said)


async def _framed(dialect: Dialect, values: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """The values as they come."""
    try:
        async for value in values:
            yield dialect.framing.frame(value)
        yield dialect.framing.end
    except LocalspecError as error:
        yield dialect.framing.frame(dialect.error(error, dialect.status(error)))


def _error(dialect: Dialect, error: LocalspecError, status: HTTPStatus) -> Response:
    response = _json(dialect.error(error, status), status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response.headers["Retry-After"] = "1"
    return response


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
