"""Text in, typed messages out; test_bounds.py damages messages at random."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import Call, ErrorObject, ProtocolFault, Response, decode

NOTICE = jsonrpc.notification("m", {})


def fault_of(text: str | bytes) -> tuple[int, Any]:
    with pytest.raises(ProtocolFault) as caught:
        decode(text)
    assert str(caught.value)
    return caught.value.code, caught.value.id


@pytest.mark.parametrize(
    ("text", "method", "id", "params"),
    [
        ('{"jsonrpc":"2.0","id":1,"method":"metrics","params":{}}', "metrics", 1, b"{}"),
        ('{"jsonrpc":"2.0","id":0,"method":"m","params":{"a": [1]}}', "m", 0, b'{"a": [1]}'),
        ('{"method":"m","jsonrpc":"2.0","params":null}', "m", None, b"null"),
        (' { "jsonrpc" : "2.0" , "method" : "\\u006d" } ', "m", None, b"{}"),
        (b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"m"}', "m", "é", b"{}"),
    ],
)
def test_a_call_is_decoded(text: str | bytes, method: str, id: Any, params: bytes) -> None:
    call = decode(text)
    assert isinstance(call, Call)
    assert (call.method, call.id, bytes(call.params)) == (method, id, params)


def test_an_error_is_decoded() -> None:
    text = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m","data":{"code":"gone"}}}'
    assert decode(text) == Response(None, None, ErrorObject(-32000, "m", {"code": "gone"}))


@pytest.mark.parametrize(
    "text", ["", "{", NOTICE + "}", "\ufeff{}", "\ud800", b'{"jsonrpc":"2.0","method":"\xff"}']
)
def test_what_is_no_json_or_no_utf8_is_a_parse_error(text: str | bytes) -> None:
    assert fault_of(text) == (jsonrpc.PARSE_ERROR, None)


@pytest.mark.parametrize("text", ["[]", "[{}]", "1", '"a"', "null", "true", "{}"])
def test_what_is_no_message_is_an_invalid_request(text: str) -> None:
    assert fault_of(text) == (jsonrpc.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    "change",
    [
        {"jsonrpc": "1.0"},
        {"jsonrpc": 2},
        {"method": 3},
        {"method": None},
        {"extra": 1},
        {"error": {"code": "a", "message": "m"}},
        *({"id": 1.5}, {"id": True}, {"id": None}, {"id": []}, {"id": "x" * 129}, {"id": 1 - 10**19}),
    ],
)
def test_an_invalid_request_is_answered_by_its_id_if_that_is_a_number_or_a_short_text(
    change: dict[str, Any],
) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "metrics"} | change
    assert fault_of(json.dumps(message)) == (jsonrpc.INVALID_REQUEST, None if "id" in change else 7)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "2.0", "id": 7, "result": 1, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": 7, "params": {}},
    ],
)
def test_neither_a_request_nor_a_response_is_refused(message: dict[str, Any]) -> None:
    assert fault_of(json.dumps(message)) == (jsonrpc.INVALID_REQUEST, 7)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"jsonrpc":"2.0","id":1,"method":"m","params":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"jsonrpc":"2.0","id":' + "9" * 100_000 + ',"method":"m"}',
    ],
    ids=["lists", "objects", "params", "number"],
)
def test_what_is_nested_too_deep_or_too_long_is_refused(text: str) -> None:
    assert fault_of(text)[0] in (jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST)


ids = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=128)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(ids, st.text(), json_values)
def test_what_is_encoded_is_decoded_again(id: int | str, method: str, value: Any) -> None:
    call = decode(jsonrpc.request(id, method, value))
    assert isinstance(call, Call)
    assert (call.id, call.method, msgspec.json.decode(call.params)) == (id, method, value)
    response = decode(jsonrpc.result(id, value))
    assert isinstance(response, Response) and response.result is not None
    assert (response.id, msgspec.json.decode(response.result)) == (id, value)
