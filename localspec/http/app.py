"""The application: all dialects behind one gate."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from localspec.client import Client
from localspec.errors import EngineError, InvalidOptions, LocalspecError
from localspec.http import llama_cpp, ollama, openai
from localspec.http.dialect import Dialect
from localspec.http.endpoint import Endpoint, answered, status_of
from localspec.http.gate import Gate
from localspec.http.schema import schema_of

log = logging.getLogger(__name__)

DIALECTS = (openai.DIALECT, llama_cpp.DIALECT, ollama.DIALECT)
SCHEMA = "/openapi.json"


def create(token: str, without_token: tuple[str, ...] = ()) -> Starlette:
    """The door, to be opened with ``token``; the dialects of ``without_token`` are open to all."""
    of_path = {endpoint.path: dialect for dialect in DIALECTS for endpoint in dialect.endpoints}
    open_paths = {SCHEMA, *(each.path for dialect in DIALECTS for each in dialect.endpoints if each.open)}

    def dialect_of(path: str) -> Dialect:
        return of_path.get(path, openai.DIALECT)

    def refuse(path: str, error: LocalspecError, status: HTTPStatus) -> Response:
        return _error(dialect_of(path), error, status)

    def needs_token(path: str) -> bool:
        known = of_path.get(path)
        return path not in open_paths and (known is None or known.name not in without_token)

    async def lost(request: Request, error: Exception) -> Response:
        """There is nothing at that address, or not by that method."""
        assert isinstance(error, HTTPException)
        said = InvalidOptions(f"{request.method} {request.url.path}: {error.detail}", "See /openapi.json.")
        response = _error(dialect_of(request.url.path), said, HTTPStatus(error.status_code))
        response.headers.update(error.headers or {})
        return response

    async def schema(request: Request) -> Response:
        return _json(schema_of(DIALECTS))

    routes = [_route(dialect, endpoint) for dialect in DIALECTS for endpoint in dialect.endpoints]
    gate = Middleware(Gate, token=token, needs_token=needs_token, refuse=refuse)
    return Starlette(
        routes=[*routes, Route(SCHEMA, schema)],
        middleware=[gate],
        exception_handlers={HTTPException: lost},
    )


def _route(dialect: Dialect, endpoint: Endpoint) -> Route:
    async def answer(request: Request) -> Response:
        try:
            said, client = await answered(endpoint, request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except LocalspecError as error:
            return _error(dialect, error, status_of(error))
        except Exception:
            log.exception("%s %s", endpoint.method, endpoint.path)
            return _error(dialect, EngineError("the request failed"), HTTPStatus.INTERNAL_SERVER_ERROR)
        if isinstance(said, AsyncIterator):
            return StreamingResponse(_framed(dialect, said, client), media_type=dialect.framing.media_type)
        await client.close()
        return _json(said)

    return Route(endpoint.path, answer, methods=[endpoint.method])


async def _framed(dialect: Dialect, values: AsyncIterator[Any], client: Client) -> AsyncIterator[bytes]:
    """The values as they come; who hangs up ends what is done for them."""
    try:
        async for value in values:
            yield dialect.framing.frame(value)
        yield dialect.framing.end
    except LocalspecError as error:
        yield dialect.framing.frame(dialect.error(error, status_of(error)))
    finally:
        await client.close()


def _error(dialect: Dialect, error: LocalspecError, status: HTTPStatus) -> Response:
    return _json(dialect.error(error, status), status)


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
