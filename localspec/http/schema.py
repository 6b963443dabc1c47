"""The OpenAPI document of the HTTP server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from localspec._version import __version__
from localspec.http.dialect import Dialect
from localspec.http.endpoint import Endpoint

PLACE = "#/components/schemas/{name}"


def schema_of(dialects: Iterable[Dialect]) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document of all endpoints, made from the types that check their bodies."""
    endpoints = [(dialect.name, each) for dialect in dialects for each in dialect.endpoints]
    schemas, components = msgspec.json.schema_components(
        [each.body for _, each in endpoints], ref_template=PLACE
    )
    paths: dict[str, Any] = {}
    for (dialect, endpoint), schema in zip(endpoints, schemas, strict=True):
        path = endpoint.path.replace(":path", "")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(dialect, endpoint, schema)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "localspec", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": bearer}},
        "security": [{"token": []}],
    }


def _operation(dialect: str, endpoint: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [dialect],
        "summary": " ".join((endpoint.handler.__doc__ or "").split()),
        "responses": {"200": {"description": "The answer."}, "default": {"description": "An error."}},
    }
    if endpoint.open:
        operation["security"] = []
    if endpoint.method == "GET":
        operation["parameters"] = [
            {"name": field.name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for field in msgspec.structs.fields(endpoint.body)
        ]
    else:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation
