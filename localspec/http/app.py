"""The application: all dialects behind one gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from localspec.client import Client
from localspec.errors import EngineError, LocalspecError, QueueFull
from localspec.http import llama_cpp, ollama, openai
from localspec.http.dialect import Dialect
from localspec.http.endpoint import Answer, Endpoint, answered, body_of
from localspec.http.gate import OWNER, Gate
from localspec.http.schema import schema_of
from localspec.http.strangers import confine

log = logging.getLogger(__name__)

DIALECTS = (openai.DIALECT, llama_cpp.DIALECT, ollama.DIALECT)
SCHEMA = "/openapi.json"
STRANGERS = 4
"""requests at once at addresses that are open to everybody on this machine; others wait"""


class NothingThere(LocalspecError):
    """There is nothing at that address, or not by that method."""

    code = "unknown_url"


def create(token: Callable[[], str | None], without_token: tuple[str, ...] = (), most: int = 32) -> Starlette:
    """The door, to be opened with what ``token`` reads; the dialects of ``without_token`` are open to all.

    ``most`` requests are at work at once: each has a connection to the daemon, which others need, too.
    """
    rooms = {False: Room(most), True: Room(STRANGERS, waits=True)}
    of_path = {endpoint.path: dialect for dialect in DIALECTS for endpoint in dialect.endpoints}
    open_paths = {SCHEMA, *(each.path for dialect in DIALECTS for each in dialect.endpoints if each.open)}

    def known(path: str) -> Dialect | None:
        return openai.DIALECT if path.startswith(openai.MODELS) else of_path.get(path)

    def dialect_of(path: str) -> Dialect:
        others = ollama.DIALECT if path.startswith("/api/") else openai.DIALECT
        return known(path) or others

    def refuse(path: str, error: LocalspecError, status: HTTPStatus) -> Response:
        return _error(dialect_of(path), error, status)

    def needs_token(path: str) -> bool:
        dialect = known(path)
        return path not in open_paths and (dialect is None or dialect.name not in without_token)

    async def lost(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        meant = f"/v1{path}" if f"/v1{path}" in of_path else SCHEMA
        said = NothingThere(f"{request.method} {path}: {error.detail}", f"See {meant}.")
        response = _error(dialect_of(path), said, HTTPStatus(error.status_code))
        response.headers.update(error.headers or {})
        return response

    async def schema(request: Request) -> Response:
        return _json(schema_of(DIALECTS))

    routes = [
        Route(endpoint.path, Address(dialect, endpoint, rooms[endpoint.open]), methods=[endpoint.method])
        for dialect in DIALECTS
        for endpoint in dialect.endpoints
    ]
    gate = Middleware(Gate, token=token, needs_token=needs_token, refuse=refuse)
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


class Address:
    """One endpoint as an application: what is held for a request is let go once its answer was sent, or
    nobody reads it."""

    def __init__(self, dialect: Dialect, endpoint: Endpoint, room: Room) -> None:
        self._dialect = dialect
        self._endpoint = endpoint
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as held:
            response = await self._response(Request(scope, receive), held)
            await response(scope, receive, send)

    async def _work(self, request: Request, body: msgspec.Struct, client: Client) -> Answer:
        if not request.scope["state"][OWNER] and not self._endpoint.open:
            await confine(client, body)
        return await self._endpoint.handler(client, body)

    async def _response(self, request: Request, held: AsyncExitStack) -> Response:
        try:
            body = await body_of(self._endpoint, request)
            await held.enter_async_context(self._room.taken())
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
