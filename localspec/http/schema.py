"""What the door takes, as an OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from localspec._version import __version__
from localspec.http.dialect import Dialect
from localspec.http.endpoint import Endpoint, Nothing

PLACE = "#/components/schemas/{name}"


def schema_of(dialects: Iterable[Dialect]) -> dict[str, Any]:
    """An OpenAPI 3.1 document of all addresses, made of what their bodies are checked by."""
    endpoints = [(dialect.name, each) for dialect in dialects for each in dialect.endpoints]
    bodies = [each.body for _, each in endpoints if each.body is not Nothing]
    _, components = msgspec.json.schema_components(bodies, ref_template=PLACE)
    paths: dict[str, Any] = {}
    for dialect, endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(dialect, endpoint)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "localspec", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": bearer}},
        "security": [{"token": []}],
    }


def _operation(dialect: str, endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [dialect],
        "summary": (endpoint.handler.__doc__ or "").strip().split("\n")[0],
        "responses": {"200": {"description": "The answer."}, "default": {"description": "What went wrong."}},
    }
    if endpoint.body is not Nothing:
        (schema,), _ = msgspec.json.schema_components([endpoint.body], ref_template=PLACE)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation
