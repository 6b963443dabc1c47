"""Greedy text is the same by HTTP, on the wire and in this process, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import localspec
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, Request
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
GAPS = ((QUEUE, "\n"), ("print(os.", ")\n"))
LONGEST = 48
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": LONGEST}


@pytest.fixture(scope="module")
def engine() -> Iterator[localspec.Engine]:
    with localspec.load("bundled") as engine:
        yield engine


def on_the_wire(http: HttpServer, prompt: str | None, messages: tuple[Message, ...] | None = None) -> str:
    async def ask() -> str:
        async with await wire(http.daemon) as client:
            options = Options(**GREEDY)
            raw = messages is None
            return (await client.generate(prompt, messages=messages, raw=raw, options=options).result()).text

    return run(ask())


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_text(http: HttpServer, engine: localspec.Engine, prompt: str) -> None:
    expected = engine.generate(prompt, **GREEDY).finish().text
    assert on_the_wire(http, prompt) == expected
    openai = GREEDY | {"prompt": prompt}
    llama = {"prompt": prompt, "temperature": 0, "n_predict": LONGEST}
    ollama = {"model": "bundled", "prompt": prompt, "raw": True}
    ollama["options"] = {"temperature": 0, "num_predict": LONGEST}
    assert http.post("/v1/completions", openai)["choices"][0]["text"] == expected
    assert http.post("/completion", llama)["content"] == expected
    assert http.post("/api/generate", ollama | {"stream": False})["response"] == expected
    assert "".join(piece["response"] for piece in http.events("/api/generate", ollama)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("proposer", ["none", "prompt-lookup", "draft"])
def test_a_chat_with_every_proposer(http: HttpServer, engine: localspec.Engine, proposer: str) -> None:
    said = [{"role": "user", "content": "Write a function that sorts a list."}]
    messages = tuple(Message(role="user", content=each["content"]) for each in said)
    sequence = engine.submit(Request(prompt=ChatPrompt(messages), options=Options(**GREEDY)))
    while engine.step():
        pass
    expected = sequence.events[-1].text  # type: ignore[union-attr]
    assert on_the_wire(http, None, messages) == expected
    body = GREEDY | {"messages": said, "localspec": {"proposer": proposer}}
    assert http.post("/v1/chat/completions", body)["choices"][0]["message"]["content"] == expected
    options = {"temperature": 0, "num_predict": LONGEST}
    body = {"model": "bundled", "messages": said, "options": options, "localspec": {"proposer": proposer}}
    assert http.post("/api/chat", body | {"stream": False})["message"]["content"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("prefix", "suffix"), GAPS)
def test_a_gap(http: HttpServer, prefix: str, suffix: str) -> None:
    async def ask() -> str:
        async with await wire(http.daemon) as client:
            options = Options(**GREEDY)
            done = await client.complete(prefix, suffix, trigger="invoked", options=options).result()
            return done.items[0].text

    expected = run(ask())
    openai = GREEDY | {"prompt": prefix, "suffix": suffix}
    assert http.post("/v1/completions", openai)["choices"][0]["text"] == expected
    infill = {"input_prefix": prefix, "input_suffix": suffix, "n_predict": LONGEST}
    assert http.post("/infill", infill)["content"] == expected
    options = {"temperature": 0, "num_predict": LONGEST}
    ollama = {"model": "bundled", "prompt": prefix, "suffix": suffix, "options": options, "stream": False}
    assert http.post("/api/generate", ollama)["response"] == expected
