"""The application: all dialects behind one gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
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
from localspec.errors import EngineError, LocalspecError, QueueFull, Unauthorized
from localspec.http import anthropic, llama_cpp, ollama, openai, responses
from localspec.http.dialect import Dialect
from localspec.http.endpoint import Answer, Connect, Endpoint, body_of, run_while_connected
from localspec.http.gate import OWNER, TOKEN_REMEDY, AccessGate, Refusal, confine
from localspec.http.models import settle_model
from localspec.protocol.options import LONGEST_SHOWN

log = logging.getLogger(__name__)

DIALECTS = (
    openai.DIALECT,
    responses.DIALECT,
    anthropic.DIALECT,
    llama_cpp.DIALECT,
    llama_cpp.CHAT,
    ollama.DIALECT,
)
AGAIN = "Try again later, or raise daemon.max_connections and run `localspec daemon restart`."
EMBEDDINGS = "Run another program for embeddings, such as `llama-server --embedding`."
SHARE = 2
"""divides the number of requests with the token that run at once into that of requests without it"""
OF_PATH = {endpoint.path: dialect for dialect in DIALECTS for endpoint in dialect.endpoints}
BELOW = {path.partition("{")[0]: dialect for path, dialect in OF_PATH.items() if "{" in path}
"""dialects by the beginnings of paths that end with a name"""
OPEN = {endpoint.path for dialect in DIALECTS for endpoint in dialect.endpoints if endpoint.open}


class UnknownUrl(LocalspecError):
    code = "unknown_url"


def find_dialect(path: str) -> Dialect | None:
    below = (dialect for beginning, dialect in BELOW.items() if path.startswith(beginning))
    return OF_PATH.get(path) or next(below, None)


def dialect_at(path: str) -> Dialect:
    """Return the dialect whose error format a refusal at a path has."""
    others = {"/api/": ollama.DIALECT, "/v1/messages": anthropic.DIALECT, "": openai.DIALECT}
    return find_dialect(path) or next(others[each] for each in others if path.startswith(each))


def not_offered(method: str, path: str) -> UnknownUrl:
    message = f"{method} {path[:LONGEST_SHOWN]} is not offered"
    if "embed" in path:
        return UnknownUrl(f"{message}: the models here make text, no embeddings", EMBEDDINGS)
    if (meant := f"/v1{path}") in OF_PATH:
        return UnknownUrl(message, f"Use {meant}.")
    if path in OF_PATH:
        methods = {each.method for each in OF_PATH[path].endpoints if each.path == path}
        return UnknownUrl(message, f"Use {' or '.join(sorted(methods))}.")
    name = dialect_at(path).name
    offered = [each for each, dialect in OF_PATH.items() if dialect.name == name and "{" not in each]
    return UnknownUrl(message, f"This dialect offers {', '.join(offered)}.")


def create(
    token: Callable[[], str | None],
    connect: Connect,
    without_token: tuple[str, ...] = (),
    most: int = 32,
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
) -> Starlette:
    """Build the HTTP application; ``token`` reads its token, ``connect`` makes a request's client of the
    daemon, ``without_token`` names dialects open to all. At most ``most`` requests with the token run at
    once, and half as many without it. ``origins`` are of web pages accepted with the token; ``hosts`` are
    further names of this machine."""
    limits = {True: most, False: max(1, most // SHARE)}
    rooms = {owner: (limit, asyncio.Semaphore(limit)) for owner, limit in limits.items()}

    def refuse_without_token(method: str, path: str, is_page: bool) -> Refusal | None:
        dialect = find_dialect(path)
        open_to_all = () if is_page else without_token
        if path in OPEN or (dialect is not None and dialect.name in open_to_all):
            return None
        message = "the token is missing or wrong"
        if open_to_all:
            if dialect is None:
                return not_offered(method, path), HTTPStatus.NOT_FOUND
            message += f"; {', '.join(open_to_all)} needs none here, {dialect.name} does"
        return Unauthorized(message, TOKEN_REMEDY), HTTPStatus.UNAUTHORIZED

    async def answer_missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, status = request.url.path, HTTPStatus(error.status_code)
        response = _error(dialect_at(path), not_offered(request.method, path), status)
        response.headers.update(error.headers or {})
        return response

    routes = [
        Route(endpoint.path, EndpointApp(dialect, endpoint, rooms, connect), methods=[endpoint.method])
        for dialect in DIALECTS
        for endpoint in dialect.endpoints
    ]
    gate = Middleware(
        AccessGate,
        token=token,
        unauthenticated=refuse_without_token,
        refuse=lambda path, *why: _error(dialect_at(path), *why),
        origins=origins,
        hosts=hosts,
    )
    return Starlette(routes=routes, middleware=[gate], exception_handlers={HTTPException: answer_missing})


@dataclass(frozen=True)
class EndpointApp:
    """One endpoint as an ASGI application; ``rooms`` are those of requests with the token and without it. A
    request holds a client of the daemon and a place in its room until its answer is complete. Both are
    released before the end of the answer is sent, so that the client's next request finds a place."""

    dialect: Dialect
    endpoint: Endpoint
    rooms: dict[bool, tuple[int, asyncio.Semaphore]]
    connect: Connect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as held:
            response = await self._response(Request(scope, receive), held)
            if not isinstance(response, StreamingResponse):
                await held.aclose()
            await response(scope, receive, send)

    async def _work(self, request: Request, body: msgspec.Struct, client: Client) -> Answer:
        is_owner = request.scope["state"][OWNER]
        await settle_model(client, body, is_owner=is_owner)
        if not is_owner:
            confine(body)
        return await self.endpoint.handler(client, body)

    async def _response(self, request: Request, held: AsyncExitStack) -> Response:
        try:
            body = await body_of(self.endpoint, request)
            if self.endpoint.open:
                return _json(await self.endpoint.handler(None, body))
            limit, room = self.rooms[request.scope["state"][OWNER]]
            if room.locked():
                raise QueueFull(f"the HTTP server already runs its limit of {limit} requests", AGAIN)
            await held.enter_async_context(room)
            client = self.connect()
            held.push_async_callback(client.close)
            answer = await run_while_connected(request, self._work(request, body, client))
        except ClientDisconnect:
            return Response(status_code=499)  # the client has disconnected
        except Exception as error:  # each has its response
            return _error(self.dialect, *self._describe_failure(error))
        if isinstance(answer, AsyncGenerator):
            frames = self._frame_values(answer, held)
            return StreamingResponse(frames, media_type=self.dialect.framing.media_type)
        return answer if isinstance(answer, Response) else _json(answer)

    async def _frame_values(self, values: AsyncGenerator[Any], held: AsyncExitStack) -> AsyncIterator[bytes]:
        """Yield the framed values and signs of life; close ``held`` before the end is sent."""
        framing = self.dialect.framing
        try:
            async with aclosing(values):
                async for value in values:
                    if framed := framing.alive if value is None else framing.frame(value):
                        yield framed
            await held.aclose()
            yield framing.end
        except Exception as error:  # the client must not take the text for the whole answer
            yield framing.frame(self.dialect.error(*self._describe_failure(error)))

    def _describe_failure(self, error: Exception) -> tuple[LocalspecError, HTTPStatus]:
        """Return an error of localspec and its status; of an unexpected one the log gets the traceback."""
        if isinstance(error, LocalspecError):
            return error, self.dialect.status(error)
        what = f"{self.endpoint.method} {self.endpoint.path}"
        log.error(what, exc_info=error)
        return EngineError(f"{what} failed unexpectedly"), HTTPStatus.INTERNAL_SERVER_ERROR


def _error(dialect: Dialect, error: LocalspecError, status: HTTPStatus) -> Response:
    response = _json(dialect.error(error, status), status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response.headers["Retry-After"] = "1"
    return response


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
