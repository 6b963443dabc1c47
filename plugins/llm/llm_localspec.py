"""localspec's models for the `llm` command: the configured one, and those on this computer.

Requests use the daemon's own wire, without HTTP server and token; the daemon is started if necessary.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from functools import cache
from queue import SimpleQueue
from typing import Any

import llm
from pydantic import Field

from localspec.client import connect
from localspec.config import load_config
from localspec.errors import LocalspecError
from localspec.models.library import read_disk
from localspec.protocol.options import Options, check_value, parse_options
from localspec.protocol.requests import Message

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

    can_stream = True
    Options = Given

    def __init__(self, model: str | None = None) -> None:
        self.model_id = NAME if model is None else f"{NAME}/{model}"
        self._model = model

    async def _pieces(self, prompt: Any, response: Any, conversation: Any) -> AsyncIterator[str]:
        try:
            options = self._options(prompt)
            messages = tuple(_messages(prompt, conversation))
            async with await connect(name="llm") as client:
                stream = client.generate(messages=messages, options=options)
                async for delta in stream:
                    yield delta.text if delta.channel == "answer" else ""
                result = await stream.result()
        except LocalspecError as error:
            raise llm.ModelError(f"{error.message}. {error.remedy}") from None
        response.set_usage(input=result.prompt_tokens, output=result.completion_tokens)
        response.response_json = {"model": result.model, "tokens_per_round": result.stats.tokens_per_round}

    def _options(self, prompt: Any) -> Options:
        given = {name: value for name, value in prompt.options if value is not None}
        for name, value in given.items():
            check_value(Options, name, value, said=f"-o {name}", remedy=REMEDY, strict=True)
        return parse_options(given if self._model is None else {"model": self._model, **given})


class Localspec(_Model, llm.Model):
    """``llm -m localspec``"""

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any = None) -> Iterator[str]:
        pieces: SimpleQueue[str | None] = SimpleQueue()

        async def generate() -> None:
            async for piece in self._pieces(prompt, response, conversation):
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
        async for piece in self._pieces(prompt, response, conversation):
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


def _messages(prompt: Any, conversation: Any) -> Iterator[Message]:
    earlier = [] if conversation is None else conversation.responses
    if system := prompt.system or next((each.prompt.system for each in earlier if each.prompt.system), None):
        yield Message("system", system)
    for each in earlier:
        yield Message("user", each.prompt.prompt or "")
        yield Message("assistant", each.text_or_raise())
    yield Message("user", prompt.prompt or "")
