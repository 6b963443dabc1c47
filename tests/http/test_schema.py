"""The OpenAPI document of the HTTP server."""

from __future__ import annotations

import json

from localspec.http.app import DIALECTS, schema_of


def test_every_address_has_its_body() -> None:
    document = schema_of(DIALECTS)
    for dialect in DIALECTS:
        for endpoint in dialect.endpoints:
            operation = document["paths"][endpoint.path.replace(":path", "")][endpoint.method.lower()]
            assert operation["tags"] == [dialect.name] and operation["summary"].endswith(".")
            assert ("requestBody" in operation) == (endpoint.method == "POST")
            assert bool(operation.get("parameters")) == ("{" in endpoint.path)
    bodies = document["paths"]["/infill"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    seen = document["components"]["schemas"][bodies["$ref"].rpartition("/")[2]]
    assert "t_max_predict_ms" in seen["properties"]


def test_all_that_is_referred_to_is_there() -> None:
    document = schema_of(DIALECTS)
    text = json.dumps(document)
    names = document["components"]["schemas"]
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in names
