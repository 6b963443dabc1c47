"""localspec's models for the `llm` command: the configured one, and those on this computer.

Requests use the daemon's own wire, without HTTP server and token; the daemon is started if necessary.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from functools import cache
from queue import SimpleQueue
from typing import Any

import llm
from llm.parts import TextPart, ToolCallPart, ToolResultPart
from pydantic import Field

from localspec.client import connect
from localspec.config import load_config
from localspec.errors import LocalspecError
from localspec.models.index import read_disk
from localspec.protocol.options import Options, check_value, parse_options
from localspec.protocol.requests import Message, Tool, ToolCall

NAME = "localspec"
REMEDY = "See `llm models --options -q localspec`."


class Given(llm.Options):
    """The options of ``-o``, by localspec's names; localspec checks their ranges."""

    temperature: float | None = Field(default=None, description="0 is greedy")
    max_tokens: int | None = Field(default=None, description="longest answer")
    top_k: int | None = Field(default=None, description="sample among the k most probable tokens")
    top_p: float | None = Field(
        default=None, description="sample among the fewest that have this probability"
    )
    min_p: float | None = Field(
        default=None, description="drop tokens less probable than this share of the most probable one"
    )
    repeat_penalty: float | None = Field(
        default=None, description="above 1: tokens that occurred become less probable"
    )
    seed: int | None = Field(default=None, description="the same seed gives the same text")
    proposer: str | None = Field(
        default=None, description="source of draft tokens, as for `localspec run --proposer`"
    )
    draft: str | None = Field(default=None, description="the draft model: a name, none or auto")
    k: int | None = Field(default=None, description="most draft tokens a round")


class _Model:
    """Base class of both kinds of models."""

    can_stream = supports_tools = supports_schema = True
    Options = Given

    def __init__(self, model: str | None = None) -> None:
        self.model_id = NAME if model is None else f"{NAME}/{model}"
        self._model = model

    async def _pieces(self, prompt: Any, response: Any) -> AsyncIterator[str]:
        try:
            options = self._options(prompt)
            messages = tuple(message for each in prompt.messages for message in _messages(each))
            tools = tuple(Tool(each.name, each.description or "", each.input_schema) for each in prompt.tools)
            async with await connect(name="llm") as client:
                stream = client.generate(messages=messages, options=options, tools=tools)
                async for delta in stream:
                    yield delta.text if delta.channel == "answer" else ""
                result = await stream.result()
        except LocalspecError as error:
            raise llm.ModelError(f"{error.message}. {error.remedy}") from None
        for call in result.tool_calls if result.finish_reason == "tool_calls" else ():
            response.add_tool_call(llm.ToolCall(call.name, json.loads(call.arguments), call.id))
        response.set_usage(input=result.prompt_tokens, output=result.completion_tokens)
        response.response_json = {"model": result.model, "tokens_per_round": result.stats.tokens_per_round}

    def _options(self, prompt: Any) -> Options:
        given = {name: value for name, value in prompt.options if value is not None}
        for name, value in given.items():
            check_value(Options, name, value, said=f"-o {name}", remedy=REMEDY, strict=True)
        return parse_options({"model": self._model, "schema": prompt.schema, **given})


class Localspec(_Model, llm.Model):
    """``llm -m localspec``"""

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any = None) -> Iterator[str]:
        pieces: SimpleQueue[str | None] = SimpleQueue()

        async def generate() -> None:
            async for piece in self._pieces(prompt, response):
                pieces.put(piece)

        running = asyncio.run_coroutine_threadsafe(generate(), _loop(os.getpid()))
        running.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
            running.result()
        finally:
            running.cancel()


class AsyncLocalspec(_Model, llm.AsyncModel):
    """The same for asynchronous programs."""

    async def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any = None
    ) -> AsyncIterator[str]:
        async for piece in self._pieces(prompt, response):
            yield piece


@cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """An event loop on a daemon thread of this process, since the caller's thread may run one."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=NAME, daemon=True).start()
    return loop


@llm.hookimpl
def register_models(register: Any) -> None:
    """Register the configured model, and the usable ones on this computer."""
    register(Localspec(), AsyncLocalspec())
    try:
        disk = read_disk(load_config().model_dirs)
    except LocalspecError:
        return
    for name in dict.fromkeys(each.names[0] for each in disk.models if each.names and each.problem is None):
        register(Localspec(name), AsyncLocalspec(name))


def _messages(given: llm.Message) -> Iterator[Message]:
    """Yield one of llm's messages as those of the wire: one for each result of a tool."""
    texts, calls = [], []
    for part in given.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ToolCallPart):
            calls.append(ToolCall(part.tool_call_id or "", part.name, json.dumps(part.arguments)))
        elif isinstance(part, ToolResultPart):
            yield Message("tool", part.output, tool_call_id=part.tool_call_id or "")
    if given.role != "tool":
        yield Message(given.role, "".join(texts), tuple(calls))
