"""Greedy text is the same by HTTP, on the wire and in this process, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import localspec
from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, FimPrompt, Message, Request
from localspec.protocol.results import Result
from tests.http.server import HttpServer, wire
from tests.waiting import run

PROMPTS = (
    "def fib(n):\n    ",
    "import os\nimport sys\n\n\ndef main():\n    ",
    "x = 1\ny = 2\nx = 1\ny = 2\nx = ",
    "# Größe: 🐻\n",
)
QUEUE = """class Queue:
    def __init__(self):
        self.items = []

    def push(self, item):
        self."""
GAPS = (
    (QUEUE, "\n"),
    ("print(os.", ")\n"),
)
LONGEST = 48
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": LONGEST}


@pytest.fixture(scope="module")
def engine() -> Iterator[localspec.Engine]:
    with localspec.load("bundled") as engine:
        yield engine


def on_the_wire(door: HttpServer, prompt: str | None, messages: tuple[Message, ...] | None = None) -> str:
    async def ask() -> str:
        async with await wire(door.daemon) as client:
            options = Options(**GREEDY)
            raw = messages is None
            return (await client.generate(prompt, messages=messages, raw=raw, options=options).result()).text

    return run(ask())


def streamed(door: HttpServer, path: str, body: Any) -> list[Any]:
    lines = door.ask("POST", path, body | {"stream": True}).text.splitlines()
    values = [line.removeprefix("data: ") for line in lines if line and line != "data: [DONE]"]
    return [json.loads(value) for value in values]


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_text(door: HttpServer, engine: localspec.Engine, prompt: str) -> None:
    expected = engine.generate(prompt, **GREEDY).finish().text
    assert on_the_wire(door, prompt) == expected
    openai = GREEDY | {"prompt": prompt}
    llama = {"prompt": prompt, "temperature": 0, "n_predict": LONGEST}
    ollama = {"model": "bundled", "prompt": prompt, "raw": True}
    ollama["options"] = {"temperature": 0, "num_predict": LONGEST}
    assert door.post("/v1/completions", openai)["choices"][0]["text"] == expected
    assert door.post("/completion", llama)["content"] == expected
    assert door.post("/api/generate", ollama | {"stream": False})["response"] == expected
    pieces = streamed(door, "/v1/completions", openai)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == expected
    assert "".join(piece["content"] for piece in streamed(door, "/completion", llama)) == expected
    assert "".join(piece["response"] for piece in streamed(door, "/api/generate", ollama)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("proposer", ["none", "prompt-lookup", "draft"])
def test_a_chat_whoever_drafts(door: HttpServer, engine: localspec.Engine, proposer: str) -> None:
    said = [{"role": "user", "content": "Write a function that sorts a list."}]
    messages = tuple(Message(role="user", content=each["content"]) for each in said)
    sequence = engine.submit(Request(prompt=ChatPrompt(messages), options=Options(**GREEDY)))
    while engine.step():
        pass
    expected = sequence.events[-1].text  # type: ignore[union-attr]
    assert on_the_wire(door, None, messages) == expected
    body = GREEDY | {"messages": said, "localspec": {"proposer": proposer}}
    assert door.post("/v1/chat/completions", body)["choices"][0]["message"]["content"] == expected
    pieces = streamed(door, "/v1/chat/completions", body)
    assert "".join(piece["choices"][0]["delta"].get("content") or "" for piece in pieces) == expected
    options = {"temperature": 0, "num_predict": LONGEST}
    body = {"model": "bundled", "messages": said, "options": options, "localspec": {"proposer": proposer}}
    assert door.post("/api/chat", body | {"stream": False})["message"]["content"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("prefix", "suffix"), GAPS)
def test_a_gap(door: HttpServer, prefix: str, suffix: str) -> None:
    async def ask() -> str:
        async with await wire(door.daemon) as client:
            options = Options(**GREEDY)
            done = await client.complete(prefix, suffix, trigger="invoked", options=options).result()
            return done.items[0].text

    expected = run(ask())
    openai = GREEDY | {"prompt": prefix, "suffix": suffix}
    assert door.post("/v1/completions", openai)["choices"][0]["text"] == expected
    infill = {"input_prefix": prefix, "input_suffix": suffix, "n_predict": LONGEST}
    assert door.post("/infill", infill)["content"] == expected
    options = {"temperature": 0, "num_predict": LONGEST}
    ollama = {"model": "bundled", "prompt": prefix, "suffix": suffix, "options": options, "stream": False}
    assert door.post("/api/generate", ollama)["response"] == expected


@pytest.mark.slow
def test_a_gap_in_this_process(door: HttpServer, engine: localspec.Engine) -> None:
    prefix, suffix = GAPS[0]
    prompt = FimPrompt(prefix, suffix, tidy=True, invoked=True)
    sequence = engine.submit(Request(prompt=prompt, options=Options(**GREEDY)))
    while engine.step():
        pass
    result = sequence.events[-1]
    assert isinstance(result, Result)
    shown = finished(result, Gap(prefix, suffix, None, None, True)).text
    assert shown
    assert (
        door.post("/v1/completions", GREEDY | {"prompt": prefix, "suffix": suffix})["choices"][0]["text"]
        == shown
    )
