"""OpenAI's responses, by its own client."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import openai
import pytest

from localspec.http import responses
from localspec.http.answers import AnswerBlock
from localspec.http.conversation import GivenTool
from localspec.http.endpoint import BodyTooLarge
from localspec.http.responses import Item, ResponseNotFound, Responses, functions_of, item_of, messages_of
from localspec.protocol.requests import CallBegun, Message, ToolCall

SAID: dict[str, Any] = {"model": "localspec"}
WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
SCHEMA = {"type": "object", "properties": {}}


def test_items_whole_and_as_they_come(client: openai.OpenAI) -> None:
    whole = client.responses.create(input="call", tools=[WEATHER, {"type": "custom", "name": "x"}], **SAID)
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (whole.status, whole.output_text) == ("completed", "I look.")
    call = whole.output[2]
    assert call.type == "function_call"
    assert (call.call_id, call.name, call.arguments) == ("call_1", "weather", '{"city": "Oslo"}')
    assert whole.usage is not None and (whole.usage.input_tokens, whole.usage.output_tokens) == (1, 6)
    with client.responses.stream(input="call", tools=[WEATHER], **SAID) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    added, done = "response.output_item.added", "response.output_item.done"
    part = ["response.content_part.added", "response.content_part.done"]
    thought, text = "response.reasoning_text", "response.output_text"
    arguments = "response.function_call_arguments"
    assert [event.type for event in events] == [
        *("response.created", "response.in_progress"),
        *(added, part[0], f"{thought}.delta", f"{thought}.delta", f"{thought}.done", part[1], done),
        *(added, part[0], f"{text}.delta", f"{text}.done", part[1], done),
        *(added, f"{arguments}.delta", f"{arguments}.delta", f"{arguments}.done", done),
        *(added, f"{arguments}.delta", f"{arguments}.done", done, "response.completed"),
    ]
    assert final.output_text == "I look."
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    assert final.output[3].model_dump()["arguments"] == whole.output[3].model_dump()["arguments"] == "{}"


def conversation_in(response: Any) -> Any:
    """The messages that reached the model, which answered with its prompt."""
    return json.loads(response.output_text)["messages"]


def test_the_next_turn_of_a_response(client: openai.OpenAI) -> None:
    first = client.responses.create(input="call", instructions="brief", tools=[WEATHER], **SAID)
    output: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    turn: Any = [*output, {"role": "user", "content": [{"type": "input_text", "text": "prompt"}]}]
    calls = [
        {"id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"id": "call_2", "name": "time", "arguments": "{}"},
    ]
    conversation = [
        {"role": "user", "content": "call"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls, "thinking": "They ask for two."},
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
        {"role": "user", "content": "prompt"},
    ]
    second = client.responses.create(input=turn, previous_response_id=first.id, **SAID)
    assert conversation_in(second) == conversation
    items: Any = [item.model_dump() for item in first.output]
    references: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
    for history in (items, references):
        asked: Any = [{"role": "user", "content": "call"}, *history, *turn]
        assert conversation_in(client.responses.create(input=asked, **SAID)) == conversation


def test_responses_that_are_kept(client: openai.OpenAI) -> None:
    kept = client.responses.create(input="hello", **SAID)
    assert client.responses.retrieve(kept.id).output_text == kept.output_text == "hello "
    client.responses.delete(kept.id)
    other = client.responses.create(input="hello", store=False, **SAID)
    for id in (kept.id, other.id):
        with pytest.raises(openai.NotFoundError, match="there is no response 'resp_"):
            client.responses.retrieve(id)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(input="hello", previous_response_id=id, **SAID)


def test_functions_of_a_namespace() -> None:
    given = [{"type": "namespace", "name": "crm", "tools": [WEATHER]}, WEATHER]
    tools = msgspec.convert(given, list[GivenTool])
    assert [tool.name for tool in functions_of(tools)] == ["crm/weather", "weather"]
    item = item_of(AnswerBlock(0, "call", CallBegun(0, "call_1", "crm/weather"), "{}"), "resp_1")
    assert (item["namespace"], item["name"]) == ("crm", "weather")
    (turn,) = messages_of((), [msgspec.convert(item, Item)])
    assert turn.tool_calls[0].name == "crm/weather"
    said = [Item("custom_tool_call", name="x", input="a"), Item("custom_tool_call_output", output="b")]
    turn, result = messages_of((), said)
    assert (turn.tool_calls[0].object, result.content) == ({"input": "a"}, "b")


@pytest.mark.parametrize("order", ["RMC", "MRC", "RCM", "RC"])
def test_what_the_assistant_thinks_says_and_calls_is_one_turn(order: str) -> None:
    kinds = {
        "R": {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
        "M": {"role": "assistant", "content": "I look."},
        "C": {"type": "function_call", "call_id": "1", "name": "f"},
    }
    output = {"type": "function_call_output", "call_id": "1", "output": "rain"}
    turn, result = messages_of((), msgspec.convert([*map(kinds.get, order), output], list[Item]))
    calls = (ToolCall("1", "f", "{}"),)
    assert turn == Message("assistant", "I look." * ("M" in order), calls, thinking="Hm.")
    assert result.role == "tool"


def test_the_oldest_responses_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MOST_KEPT_BYTES", 1000)
    kept = Responses()
    for i in range(4):
        kept.keep({"id": f"resp_{i}"}, (Message("user", "x" * 400),))
    with pytest.raises(ResponseNotFound):
        kept.find("resp_1")
    assert kept.find("resp_2") and kept.find("resp_3")


def test_references_make_no_conversation_longer_than_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "RESPONSES", Responses())
    item = {"id": "msg_1_0", "type": "message", "role": "assistant", "content": "x" * 40_000}
    responses.RESPONSES.keep({"id": "resp_1", "output": [item]}, ())
    assert len(messages_of((), [Item("item_reference", id="msg_1_0")] * 9)) == 9
    with pytest.raises(BodyTooLarge):
        messages_of((), [Item("item_reference", id="msg_1_0")] * 50_000)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"input": [{"type": "computer_call_output"}]}, "'computer_call_output' is not supported"),
        ({"background": True}, "background is not supported"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice names no tool"),
    ],
    ids=str,
)
def test_what_is_refused(client: openai.OpenAI, said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence):
        client.responses.create(**{**SAID, "input": "hello", **said})


def test_the_form_of_the_text(client: openai.OpenAI) -> None:
    format: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}
    answer = client.responses.create(input="options", text=format, max_output_tokens=9, **SAID)
    options = json.loads(answer.output_text)
    assert (options["schema"], options["max_tokens"]) == (SCHEMA, 9)
    chats: Any = {"extra_body": {"max_tokens": 7}}
    answer = client.responses.create(input="options", **chats, **SAID)
    assert json.loads(answer.output_text)["max_tokens"] == 7
