"""A conversation with tools: an answer, its calls, their results, until an answer has no calls."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from localspec import process
from localspec.agent.server import Server, ToolError
from localspec.errors import InvalidOptions, LocalspecError
from localspec.protocol.jsonrpc import shortened
from localspec.protocol.requests import Message, Result, Tool, ToolCall
from localspec.tools.families import as_json, object_of
from localspec.wording import duration, one_line

MOST_TURNS = 20
"""answers with calls, after which a conversation is ended"""
SHOWN_ARGUMENTS, SHOWN_RESULT = 4_000, 120
"""characters in the line of a call, and of its result"""
FORMS = 'Give FILE.py with functions, or FILE.json with {"mcpServers": {NAME: {"command": …, "args": […]}}}.'
NO_FUNCTION = (
    "Of a Python file the public functions with a docstring and annotated parameters are tools. "
    f"It runs in localspec's Python, {process.python('localspec')[0]}: install there what it imports."
)

Consent = Literal["yes", "no", "always"]


class _Command(msgspec.Struct):
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class _Commands(msgspec.Struct, rename="camel"):
    mcp_servers: dict[str, _Command]


def servers_in(path: Path) -> list[Server]:
    """The programs that a file names: one for a Python file, and the servers of a JSON file. Raises
    :class:`InvalidOptions`."""
    try:
        data = path.read_bytes()
        if path.suffix == ".py":
            return [Server(path.name, process.python("localspec.agent.functions", str(path)))]
        commands = msgspec.json.decode(data, type=_Commands).mcp_servers
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", FORMS) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidOptions(f"{path} names no tools: {error}", FORMS) from None
    return [Server(name, (each.command, *each.args), each.env) for name, each in commands.items()]


class Toolbox:
    """The tools of programs, which run from :meth:`open` to :meth:`close`."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers
        self._places: dict[str, tuple[Server, Tool]] = {}

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(replace(tool, name=name) for name, (_, tool) in self._places.items())

    async def open(self) -> list[str]:
        """Start the programs; returns sentences on tools that are missing. Of two tools with one name the
        second gets its program's before it. Raises :class:`LocalspecError` if there is no tool at all."""
        listed = await asyncio.gather(*(server.tools() for server in self._servers))
        for server, (tools, _) in zip(self._servers, listed, strict=True):
            for tool in tools:
                full = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server.name[:20]}_{tool.name}")
                self._places[full if tool.name in self._places else tool.name] = (server, tool)
        remarks = [remark for _, remark in listed if remark]
        if not self._places:
            raise LocalspecError("; ".join(remarks) or "there are no tools", NO_FUNCTION)
        return remarks

    async def call(self, call: ToolCall) -> str:
        """The result of a call; raises :class:`ToolError`."""
        arguments = object_of(call.arguments)
        if call.name not in self._places or not isinstance(arguments, dict):
            raise ToolError("there is no such tool, or its arguments are no JSON object")
        server, tool = self._places[call.name]
        return await server.call(tool.name, arguments)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))


class Front(Protocol):
    """The model and the user, as a front end has them."""

    async def answer(self, messages: tuple[Message, ...]) -> Result: ...
    async def consent(self, tool: str) -> Consent: ...
    def note(self, line: str) -> None: ...


async def converse(messages: list[Message], box: Toolbox, front: Front) -> Result:
    """Answer a conversation, making the calls that the user consents to; returns the last answer. All
    answers and results are appended to ``messages``."""
    always: set[str] = set()
    for _ in range(MOST_TURNS):
        answer = await front.answer(tuple(messages))
        messages.append(Message("assistant", answer.text, answer.tool_calls))
        if answer.finish_reason != "tool_calls":
            break
        for call in answer.tool_calls:
            arguments = shortened(as_json(object_of(call.arguments)), SHOWN_ARGUMENTS)
            front.note(one_line(f"{call.name} {arguments}"))
            text = await _called(call, box, front, always)
            messages.append(Message("tool", text, tool_call_id=call.id))
    else:
        front.note(f"ended after {MOST_TURNS} answers with calls")
    return answer


async def _called(call: ToolCall, box: Toolbox, front: Front, always: set[str]) -> str:
    """The result of a call, or its refusal or failure in words. A cancel, as by Ctrl-C, cancels only the call
    if it is the first one of this task."""
    consent = "always" if call.name in always else await front.consent(call.name)
    if consent == "no":
        return "The user refused this call."
    if consent == "always":
        always.add(call.name)
    began = time.monotonic()
    try:
        text = await box.call(call)
    except ToolError as error:
        text = f"error: {error}"
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling() > 1:
            raise
        text = "The user cancelled this call."
    shown = one_line(shortened(" ".join(text.split()), SHOWN_RESULT))
    front.note(f"{call.name}: {shown} ({duration(time.monotonic() - began)})")
    return text
