"""Each method's parameters, by name, and the one JSON object that `run --json` and answers are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from localspec.protocol import jsonrpc, messages
from localspec.protocol.jsonrpc import Call, Params, ProtocolFault
from localspec.protocol.messages import METHODS, params_of
from localspec.protocol.options import Options
from localspec.protocol.requests import File, Message, ProposerStats, Result, Stats, Token

EXAMPLES: dict[str, dict[str, Any]] = {
    "initialize": {"protocol": 1, "client": {"name": "vim", "version": "9"}},
    "models/list": {},
    "models/load": {"model": "m", "draft": "none", "backend": "mlx", "keep_alive_s": 60.0},
    "models/unload": {"model": "m"},
    "session/open": {"system": "Be brief.", "private": True, "options": {"k": 4}},
    "session/list": {"query": "x", "limit": 5, "offset": 5},
    "session/get": {"session": "s"},
    "session/delete": {"session": "s"},
    "session/rename": {"session": "s", "title": "t"},
    "session/configure": {"session": "s", "options": {"k": 4}},
    "session/fork": {"session": "s", "message": 3},
    "chat/send": {"session": "s", "content": "hi"},
    "chat/edit": {"session": "s", "content": "hi", "message": 3},
    "chat/regenerate": {"session": "s", "message": 3},
    "chat/results": {"session": "s", "results": [{"tool_call_id": "call_1", "content": "rain"}]},
    "stream/resume": {"stream": "x", "after_seq": 7},
    "generate": {"messages": [{"role": "user", "content": "hi"}], "options": {"stop": ["a"]}},
    "tokenize": {"text": "a", "model": "m", "start": True, "special": True, "pieces": True},
    "completion/inline": {"prefix": "a", "suffix": "b", "n": 2, "max_ms": 500}
    | {"extra": [{"path": "p", "text": "t"}]},
    "completion/feedback": {"item": "i", "event": "partial", "chars": 3},
    "completion/warm": {"path": "p", "prefix": "a", "suffix": "b"},
    "memory/stats": {},
    "memory/forget": {"workspace": "/w", "source": "run"},
    "memory/prime": {"paths": ["/w"], "texts": [{"path": "/p", "text": "t"}], "workspace": "/w"},
    "events/subscribe": {},
    "metrics": {},
    "daemon/status": {},
    "daemon/shutdown": {"if_idle": True},
    "$/cancelRequest": {"id": "x"},
}
READ: dict[str, dict[str, Any]] = {
    "initialize": {"client": messages.ClientInfo(name="vim", version="9")},
    "session/open": {"options": Options(k=4)},
    "session/configure": {"options": Options(k=4)},
    "generate": {"messages": (Message("user", "hi"),), "options": Options(stop=("a",))},
    "completion/inline": {"extra": (File("p", "t"),)},
    "memory/prime": {"paths": ("/w",), "texts": (File("/p", "t"),)},
    "chat/results": {"results": (messages.CallResult("call_1", "rain"),)},
}
"""the fields of them that are no text or number"""


def expected(method: str) -> Params:
    return METHODS[method](**EXAMPLES[method] | READ.get(method, {}))


def call(method: str, params: Any) -> Call:
    return Call(method, 7, msgspec.Raw(msgspec.json.encode(params)))


def refusal(method: str, params: Any) -> tuple[int, str]:
    with pytest.raises(ProtocolFault) as caught:
        params_of(call(method, params))
    assert caught.value.id == 7
    return caught.value.code, str(caught.value)


def test_every_method_has_an_example_here() -> None:
    assert sorted(EXAMPLES) == sorted(METHODS)


@pytest.mark.parametrize("method", EXAMPLES)
def test_the_parameters_of_a_method_are_read_and_sent(method: str) -> None:
    assert params_of(call(method, EXAMPLES[method])) == expected(method)
    assert msgspec.json.decode(msgspec.json.encode(expected(method))) == EXAMPLES[method]


@pytest.mark.parametrize("method", [method for method in EXAMPLES if method != "initialize"])
def test_an_unknown_parameter_is_refused_by_name(method: str) -> None:
    code, message = refusal(method, {**EXAMPLES[method], "zoom": 1})
    assert code == jsonrpc.INVALID_PARAMS
    assert message == f"{method}: object contains unknown field zoom"


def test_a_client_of_another_protocol_is_understood_far_enough_to_be_refused() -> None:
    assert params_of(call("initialize", EXAMPLES["initialize"] | {"zoom": 1})) == expected("initialize")


@pytest.mark.parametrize("method", EXAMPLES)
@pytest.mark.parametrize("params", [[], "text", 1, None])
def test_parameters_are_an_object(method: str, params: Any) -> None:
    code, message = refusal(method, params)
    assert (code, message.startswith(f"{method}: expected object")) == (jsonrpc.INVALID_PARAMS, True)


@pytest.mark.parametrize(("method", "name"), [("chat/edit", "message"), ("session/configure", "options")])
def test_a_missing_parameter_is_named(method: str, name: str) -> None:
    values = {key: value for key, value in EXAMPLES[method].items() if key != name}
    message = f"{method}: object missing required field {name}"
    assert refusal(method, values) == (jsonrpc.INVALID_PARAMS, message)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("completion/inline", {"n": 0}, "n: expected int >= 1"),
        ("completion/inline", {"n": 9}, "n: expected int <= 8"),
        ("completion/inline", {"max_ms": 0}, "max_ms: expected int >= 1"),
        ("completion/inline", {"max_ms": 600_001}, "max_ms: expected int <= 600000"),
        ("chat/send", {"options": {"k": 21}}, "options.k: expected int <= 20"),
        ("chat/send", {"content": ""}, "content: expected str of length >= 1"),
        ("chat/edit", {"message": 0}, "message: expected int >= 1"),
        ("chat/regenerate", {"message": 2**63}, "message: "),
        ("session/rename", {"title": ""}, "title: expected str of length >= 1"),
        ("session/list", {"limit": 0}, "limit: expected int >= 1"),
        ("session/list", {"offset": -1}, "offset: expected int >= 0"),
        ("stream/resume", {"after_seq": -2}, "after_seq: expected int >= -1"),
        ("chat/send", {"options": {"kk": 1}}, "options: object contains unknown field kk"),
        ("generate", {"messages": [{"role": "robot"}]}, "messages[0].role: invalid enum value"),
        ("memory/forget", {"workspace": ""}, "workspace: expected str of length >= 1"),
        ("memory/forget", {"workspace": "/a\0b"}, "workspace: expected str matching regex"),
        ("memory/prime", {"paths": ["/a\0b"]}, "paths[0]: expected str matching regex"),
        ("generate", {"options": {"workspace": "/a\0b"}}, "options.workspace: expected str matching regex"),
        ("memory/prime", {"paths": ["x"] * 257}, "paths: expected array of length <= 256"),
        ("initialize", {"protocol": "1"}, "protocol: expected int, got str"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_place(
    method: str, change: dict[str, Any], message: str
) -> None:
    code, found = refusal(method, EXAMPLES[method] | change)
    assert code == jsonrpc.INVALID_PARAMS
    assert found.startswith(f"{method}: {message}")


def test_a_method_like_none_of_ours_gets_no_suggestion() -> None:
    assert refusal("zzzzzz", {}) == (jsonrpc.METHOD_NOT_FOUND, "there is no method named 'zzzzzz'")


def test_an_older_daemons_list_of_models_is_read() -> None:
    """Fields of a model that an older daemon lacks have defaults; its list of stores is empty."""
    older = {"id": "toy", "path": "/toy.gguf", "format": "gguf", "backend": "llama_cpp", "size": 1}
    listed = msgspec.convert({"models": [older]}, messages.ModelList)
    assert listed.stores == () and listed.models[0].names == () and listed.models[0].store is None
    loaded = {"model": "toy", "draft": None, "pid": 1, "resident_bytes": None, "running": 0}
    assert msgspec.convert(loaded, messages.LoadedModel).placement is None


DOCUMENTED = """
{
  "text": "def é",
  "finish_reason": "stop",
  "model": "stdlib-6m",
  "draft": "stdlib-1m",
  "backend": "llama_cpp",
  "prompt_tokens": 5,
  "cached_tokens": 4,
  "completion_tokens": 9,
  "stats": {
    "rounds": 3,
    "drafted": 8,
    "accepted": 6,
    "acceptance_rate": 0.75,
    "tokens_per_round": 3.0,
    "proposers": {"draft": {"drafted": 8, "accepted": 6, "seconds": 0.25}},
    "k_histogram": {"0": 1, "4": 2},
    "exactness": "near-ties",
    "rounded_tokens": 7,
    "truncated_messages": 2,
    "untemplated": false,
    "speculation_off_reason": null,
    "choices": {"draft": 2, "no draft found": 1},
    "time_saved_s": 1.5,
    "queued_s": 0.0625,
    "ttft_s": 0.5,
    "decode_tokens_per_s": 20.0
  }
}
"""


RESULT = msgspec.json.decode(DOCUMENTED, type=Result)


def test_a_result_is_the_documented_object_in_its_order() -> None:
    documented = json.loads(DOCUMENTED)
    assert json.dumps(json.loads(msgspec.json.encode(RESULT))) == json.dumps(documented)
    assert set(documented["stats"]) == set(Stats.__struct_fields__)
    assert (RESULT.text, RESULT.stats.k_histogram) == ("def é", {0: 1, 4: 2})
    assert RESULT.stats.proposers == {"draft": ProposerStats(drafted=8, accepted=6, seconds=0.25)}


def test_a_token_has_a_logprob_only_if_asked_for() -> None:
    assert msgspec.to_builtins(Token(7, "target", 1)) == {"id": 7, "source": "target", "chars": 1}
    assert msgspec.to_builtins(Token(7, "draft", 0, -0.5))["logprob"] == -0.5
