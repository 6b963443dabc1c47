"""Tools, thoughts and the form of answers in every dialect, by official clients or plain requests."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import ollama
import openai
import pytest

from localspec.errors import InvalidOptions
from localspec.http.answers import AnswerBlock, BlockStep
from localspec.http.anthropic import events_of as anthropic_events
from localspec.http.app import DIALECTS
from localspec.http.conversation import CalledFunction, ChatMessage, GivenCall, conversation_of
from localspec.http.ollama import of_chat as ollama_chat
from localspec.http.responses import Item, item_of, messages_of
from localspec.http.responses import events_of as responses_events
from localspec.protocol.requests import CallBegun, ToolCall
from tests.http.server import HttpServer

WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
CALL: Any = [{"role": "user", "content": "call"}]


def chat_of(echo: HttpServer, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = echo.post(path, body)
    found: dict[str, Any] = json.loads(answer["choices"][0]["message"]["content"])
    return found


def test_calls_and_thoughts_of_a_chat(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="localspec", messages=CALL, tools=[TOOL]).choices[0]
    calls = [call for call in whole.message.tool_calls or [] if call.type == "function"]
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_1", "weather", '{"city": "Oslo"}'),
        ("call_2", "time", "{}"),
    ]
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", "I look.")
    assert (whole.message.model_extra or {})["reasoning_content"] == "They ask for two."
    with client.chat.completions.stream(model="localspec", messages=CALL, tools=[TOOL]) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls" and streamed.message.content == "I look."
    again = [call.function for call in streamed.message.tool_calls or []]
    assert [(each.name, each.arguments) for each in again] == [
        (call.function.name, call.function.arguments) for call in calls
    ]


def test_calls_and_thoughts_of_ollama(echo: HttpServer) -> None:
    client = ollama.Client(echo.url, headers={"authorization": f"Bearer {echo.token}"})
    with contextlib.closing(client._client):
        whole = client.chat("localspec", CALL, tools=[TOOL], think=True).message
        streamed = list(client.chat("localspec", CALL, tools=[TOOL], stream=True))
    assert (whole.thinking, whole.content) == ("They ask for two.", "I look.")
    chunks = [chunk.message for chunk in streamed]
    assert "".join(chunk.thinking or "" for chunk in chunks) == whole.thinking
    assert "".join(chunk.content or "" for chunk in chunks) == whole.content
    calls = [call.function for chunk in chunks for call in chunk.tool_calls or []]
    assert [(call.name, call.arguments) for call in calls] == [("weather", {"city": "Oslo"}), ("time", {})]
    assert whole.tool_calls and [call.function for call in whole.tool_calls] == calls


CALLED = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
NAMED = {"type": "function", "function": {"name": "weather"}}


def test_what_reaches_the_model(echo: HttpServer) -> None:
    history: list[dict[str, Any]] = [
        {"role": "developer", "content": "brief"},
        {"role": "user", "content": [{"type": "text", "text": "Oslo?"}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "user", "content": "prompt"},
    ]
    body = {"messages": history, "tools": [TOOL], "tool_choice": NAMED, "parallel_tool_calls": False}
    body |= {"reasoning_effort": "low", "store": True, "user": "u", "chat_template_kwargs": {"x": 1}}
    seen = chat_of(echo, "/v1/chat/completions", body)
    call = {"id": "c1", "name": "weather", "arguments": "{}"}
    assert seen["messages"][1:4] == [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "", "tool_calls": [call], "thinking": "Hm."},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]
    assert seen["tools"] == [{"name": "weather", "parameters": WEATHER}]
    assert (seen["tool_choice"], seen["tool"], seen["parallel_tool_calls"]) == ("required", "weather", False)
    assert seen["variables"] == {"reasoning_effort": "low", "enable_thinking": True, "thinking": True, "x": 1}


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"schema": {"type": "object"}}),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, {"schema": SCHEMA}),
        ({"json_schema": SCHEMA}, {"schema": SCHEMA}),
        ({"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"', "grammar_syntax": "gbnf"}),
        ({"speculative.n_max": 4, "localspec": {"k": 2}}, {"k": 2}),
        *(({name: 64}, {"think": 64}) for name in ("reasoning_budget", "thinking_budget_tokens")),
        ({"reasoning_budget_tokens": -1}, {}),
        ({"repetition_penalty": 1.2, "repeat_last_n": 64}, {"repeat_penalty": 1.2, "repeat_last_n": 64}),
        ({"reasoning_effort": "none", "thinking_token_budget": 64}, {"think": 0}),
    ],
    ids=str,
)
def test_the_form_of_an_answer_and_its_drafts(
    echo: HttpServer, said: dict[str, Any], options: dict[str, Any]
) -> None:
    body = {"messages": [{"role": "user", "content": "options"}]}
    plain, seen = (chat_of(echo, "/v1/chat/completions", body | more) for more in ({}, said))
    assert seen == plain | options


@pytest.mark.parametrize(
    ("format", "schema"), [("json", {"type": "object"}), (SCHEMA, SCHEMA), ("", None)], ids=str
)
def test_the_format_of_ollama(echo: HttpServer, format: Any, schema: Any) -> None:
    body = {"model": "localspec", "prompt": "options", "raw": True, "stream": False, "format": format}
    assert json.loads(echo.post("/api/generate", body)["response"]).get("schema") == schema


def test_too_many_tools_are_refused_while_the_body_is_read() -> None:
    bodies = {endpoint.body for dialect in DIALECTS for endpoint in dialect.endpoints}
    bodies = {body for body in bodies if "tools" in body.__struct_fields__}
    said = {"model": "localspec", "max_tokens": 1, "messages": [], "input": "", "tools": [TOOL] * 1025}
    for body in bodies:
        with pytest.raises(msgspec.ValidationError, match="length <= 1024 - at `.[.]tools`"):
            msgspec.convert(said, body)
    assert len(bodies) >= 4


def test_results_without_ids_belong_to_the_calls_in_order() -> None:
    """Ollama's clients send calls without ids, and results by the name of the tool at most."""
    calls = [{"function": {"name": name, "arguments": {"x": 1}}} for name in ("a", "b", "a")]
    given: list[Any] = [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "of b", "tool_name": "b"},
        {"role": "tool", "content": "first"},
        {"role": "tool", "content": "second"},
    ]
    messages, prefilled = conversation_of(msgspec.convert(given, list[ChatMessage]))
    assert messages[0].tool_calls[0] == ToolCall("call_0_0", "a", '{"x":1}') and not prefilled
    assert [message.tool_call_id for message in messages[1:]] == ["call_0_1", "call_0_0", "call_0_2"]


def test_as_many_calls_and_results_as_a_body_holds_take_little_of_the_daemons_loop() -> None:
    many = 60_000  # seconds for each thousand, if every result looked at all calls
    asked = ChatMessage("assistant", tool_calls=[GivenCall(CalledFunction("a"))] * many)
    messages, _ = conversation_of([asked, *[ChatMessage("tool", "", tool_name="a")] * many])
    assert messages[-1].tool_call_id == f"call_0_{many - 1}"
    (turn,) = messages_of((), [Item("function_call"), Item("reasoning")] * many)
    assert len(turn.tool_calls) == many


@pytest.mark.parametrize("text", ['{"path', '{"a": 1', ""])
def test_a_call_that_is_cut_is_told_apart_in_every_dialect(text: str) -> None:
    cut = AnswerBlock(0, "call", CallBegun(0, "c1", "weather"), text)
    assert item_of(cut, "resp_1")["status"] == "incomplete"
    assert item_of(AnswerBlock(0, "call", cut.call, "{}"), "resp_1")["status"] == "completed"
    kinds = [event["type"] for event in responses_events(BlockStep("ended", cut), "resp_1")]
    assert kinds == ["response.output_item.done"]
    assert [*anthropic_events(BlockStep("begun", cut)), *anthropic_events(BlockStep("ended", cut))] == []
    calls = ToolCall("c1", "weather", text), ToolCall("c2", "time", "{}")
    shown = ollama_chat("", "", calls)["message"]["tool_calls"]
    assert [call["function"]["name"] for call in shown] == ["time"]


def test_half_a_character_and_images_in_results_do_not_end_a_history(echo: HttpServer) -> None:
    result = [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "\ud83d"}]
    turns = [{"role": "tool", "tool_call_id": "c1", "content": result}, {"role": "user", "content": "prompt"}]
    seen = chat_of(echo, "/v1/chat/completions", {"messages": turns})
    note = "[image left out: this model reads text]"
    assert seen["messages"][0]["content"] == f"{note}\n\ufffd"
    turn = ChatMessage("tool", "seen", images=["QQ=="])
    assert conversation_of([turn])[0][0].content == f"seen\n{note}"
    with pytest.raises(InvalidOptions, match="images"):
        conversation_of([msgspec.structs.replace(turn, role="user")])


SAID: dict[str, Any] = {"model": "localspec", "max_tokens": 64}


def test_blocks_of_anthropics_messages(echo: HttpServer) -> None:
    body = {**SAID, "messages": CALL, "tools": [{"name": "weather", "input_schema": WEATHER}]}
    whole = echo.post("/v1/messages", {**body, "thinking": {"type": "enabled", "budget_tokens": 1024}})
    assert (whole["type"], whole["role"], whole["stop_reason"]) == ("message", "assistant", "tool_use")
    assert whole["content"] == [
        {"type": "thinking", "thinking": "They ask for two.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "call_2", "name": "time", "input": {}},
    ]
    unthought = echo.post("/v1/messages", body)["content"]
    assert [block["type"] for block in unthought] == ["text", "tool_use", "tool_use"]


def test_events_of_anthropics_messages_in_their_order(echo: HttpServer) -> None:
    body = {**SAID, "messages": CALL, "stream": True, "thinking": {"type": "adaptive"}}
    frames = echo.ask("POST", "/v1/messages", body).text.strip().split("\n\n")
    names, values = zip(*(frame.split("\ndata: ") for frame in frames), strict=True)
    events = [json.loads(value) for value in values]
    assert [name.removeprefix("event: ") for name in names] == [event["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event["type"] for event in events] == [
        *("message_start", "ping", block[0], block[1], block[1], block[1], block[2]),
        *(*block, *block, *block, "message_delta", "message_stop"),
    ]
    assert [event["index"] for event in events if "index" in event] == [0] * 5 + [1] * 3 + [2] * 3 + [3] * 3
    begun = [event["content_block"] for event in events if event["type"] == block[0]]
    assert begun[2] == {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}}
    deltas = [event["delta"] for event in events if event["type"] == block[1]]
    assert deltas[0] == {"type": "thinking_delta", "thinking": "They ask "}
    assert deltas[2] == {"type": "signature_delta", "signature": ""}
    assert deltas[3] == {"type": "text_delta", "text": "I look."}
    assert deltas[4] == {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    assert events[-2]["usage"] == {"input_tokens": 1, "output_tokens": 6, **cached}


BLOCKS = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
]
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]}
AGENT: dict[str, Any] = {
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1f;"},
        {"type": "text", "text": "brief", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": BLOCKS},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "prompt"}]},
    ],
    "tools": [{"name": "weather", "input_schema": WEATHER, "cache_control": {"type": "ephemeral"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "metadata": {"user_id": "u"},
}


def test_what_reaches_the_model_of_anthropics_messages(echo: HttpServer) -> None:
    seen = json.loads(echo.post("/v1/messages", {**SAID, **AGENT})["content"][0]["text"])
    call = {"id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'}
    assert seen["messages"] == [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call], "thinking": "hm"},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        {"role": "user", "content": "prompt"},
    ]
    assert seen["tools"] == [{"name": "weather", "parameters": WEATHER}]
    assert (seen["tool_choice"], seen["parallel_tool_calls"]) == ("required", False)
    assert seen["variables"]["enable_thinking"] is False
    counted = echo.post("/v1/messages/count_tokens", {"model": "localspec", **AGENT})
    assert counted == {"input_tokens": len(msgspec.json.encode(seen))}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "'image'"),
        ({"tools": [{"name": 'a"b', "input_schema": {}}]}, "tools[0].name"),
        ({"thinking": {"type": "enabled"}, "output_config": {"effort": "huge"}}, "effort 'huge'"),
    ],
    ids=str,
)
def test_errors_of_anthropics_messages(echo: HttpServer, said: dict[str, Any], sentence: str) -> None:
    refused = echo.ask("POST", "/v1/messages", {**SAID, "messages": CALL, **said})
    body = refused.json()
    assert (refused.status_code, body["type"]) == (400, "error")
    assert body["error"]["type"] == "invalid_request_error"
    assert sentence in body["error"]["message"]


def test_the_batches_of_anthropics_messages_are_not_offered(echo: HttpServer) -> None:
    assert echo.ask("POST", "/v1/messages/batches", {}).json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "exit 3"}]}, "error"),
        ("/v1/responses", {"input": "exit 3"}, "response.failed"),
    ],
    ids=str,
)
def test_a_stream_that_fails_ends_with_its_error(
    echo: HttpServer, path: str, body: dict[str, Any], last: str
) -> None:
    *_, end = echo.ask("POST", path, {**SAID, **body, "stream": True}).text.strip().split("\n\n")
    name, data = end.split("\ndata: ")
    event = json.loads(data)
    assert name == f"event: {last}" and event["type"] == last
    assert "exited with code 3" in event.get("response", event)["error"]["message"]
