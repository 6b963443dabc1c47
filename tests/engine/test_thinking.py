"""A budget of thoughts: they end in time, with and without speculation, a form and calls of tools."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence as Running
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, EngineConfig, Message, Request, Result, Tool
from tests.engine.test_channels import Thinker
from tests.toy import ToyBackend, ToyVocabulary
from tests.toys import run_all, scripted, small_markov

HI = (Message("user", "hi"),)
CLOSED = "</think>"


class Opened(ToyVocabulary):
    chat_template = f"{ToyVocabulary.chat_template}<think>"


FORMS: list[dict[str, Any]] = [{}, {"choice": ("abcabc", "fed")}, {"regex": "[a-f]{2,9}"}]
WAYS: list[dict[str, Any]] = [{"temperature": 0.0}, {"seed": 3, "temperature": 1.0, "repeat_penalty": 1.2}]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("think", [0, 9])
def test_every_proposer_ends_thoughts_as_plain_decoding_does(
    form: dict[str, Any], way: dict[str, Any], think: int
) -> None:
    for seed in range(6):
        target, draft = (ToyBackend(small_markov(s), vocabulary=Opened()) for s in (seed, seed + 1))
        engine = Engine(target, draft, config=EngineConfig(prefill_chunk=4))
        running: list[Running] = []
        for proposer in ("none", "auto", "prompt-lookup", "draft"):
            options = Options(proposer=proposer, think=think, max_tokens=60, **form, **way)
            running.append(engine.submit(Request(prompt=ChatPrompt(HI), options=options)))
        run_all(engine, running)
        assert len({(tuple(each.tokens), each.finish) for each in running}) == 1
        thought, closed, _ = running[0].text.text.partition(CLOSED)
        assert len(thought) == think if closed else running[0].finish == "stop" and len(thought) <= think


def said(text: str, vocabulary: ToyVocabulary, **options: Any) -> Result:
    backend = ToyBackend(scripted(b"user: hi" + text.encode()), vocabulary=vocabulary)
    return Engine(backend).stream(Request(prompt=ChatPrompt(HI), options=Options(**options))).finish()


@pytest.mark.parametrize(
    ("text", "think", "thinking", "answer"),
    [
        ("<think>abcdef</think>\n\nyes", 10, "abc", ""),
        ("<think>abcdef</think>\n\nyes", 13, "abcdef", "yes"),
        ("<think>abcdef</think>\n\nyes", 17, "abcdef", "yes"),
        ("<think>abcdef</think>\nyes", 30, "abcdef", "yes"),
        ("<think>ab</think>\n<think>cd</think>yes", 0, "", ""),
        ("a <think>b</think>", 0, "", "a <think>b</think>"),
    ],
)
def test_a_thought_ends_at_its_budget_or_where_the_model_ends_it(
    text: str, think: int, thinking: str, answer: str
) -> None:
    result = said(text, Thinker(), think=think)
    assert (result.thinking, result.thinking_tokens, result.text) == (thinking, len(thinking), answer)


def test_a_call_that_must_be_made_follows_the_budget() -> None:
    backend = ToyBackend(small_markov(1), vocabulary=Thinker())
    chat = ChatPrompt((*HI, Message("assistant", "<think>a")), True, tools=(Tool("now"),), tool="now")
    result = Engine(backend).stream(Request(prompt=chat, options=Options(think=4, temperature=0.0))).finish()
    assert result.thinking_tokens == len(result.thinking) == 4
    assert [call.name for call in result.tool_calls] == ["now"]
