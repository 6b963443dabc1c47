"""Tools with the real Qwen2.5-Coder 1.5B: it calls the right one, and answers from its result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from localspec.engine.engine import Engine
from localspec.engine.load import choose_here, load_engine
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, EngineConfig, Message, Request, Result, Tool
from tests.real_models import TARGET, real_model

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(n_ctx=2048, idle_measuring=False)
TOOLS = tuple(
    Tool(name, about, {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]})
    for name, about, key in (
        ("get_weather", "Get the weather of a city", "city"),
        ("get_time", "Get the current time in a time zone", "zone"),
    )
)
ASKED = (Message("system", "You are a helpful assistant."), Message("user", "What is the weather in Paris?"))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load_engine(choose_here(str(real_model(TARGET)), "none", config=CONFIG), config=CONFIG) as engine:
        yield engine


def said(engine: Engine, *messages: Message, **asked: Any) -> Result:
    prompt = ChatPrompt(messages, tools=TOOLS, **asked)
    options = Options(temperature=0.0, max_tokens=80)
    return engine.stream(Request(prompt=prompt, options=options)).finish()


def test_a_tool_is_called_and_its_result_is_answered(engine: Engine) -> None:
    called = said(engine, *ASKED)
    (call,) = called.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert called.finish_reason == "tool_calls" and not called.text
    turn = Message("assistant", called.text, called.tool_calls)
    result = Message("tool", '{"sky": "clear", "celsius": 18}', (), call.id)
    # With its tools it calls again: a model of this size knows no end.
    answered = said(engine, *ASKED, turn, result, tool_choice="none")
    assert answered.finish_reason == "stop" and "18" in answered.text and not answered.tool_calls


def test_a_call_of_a_named_tool_is_mostly_forced(engine: Engine) -> None:
    result = said(engine, *ASKED, tool="get_time")
    (call,) = result.tool_calls
    assert call.name == "get_time" and list(json.loads(call.arguments)) == ["zone"]
    assert result.stats.proposers["grammar"].accepted > result.completion_tokens / 2
