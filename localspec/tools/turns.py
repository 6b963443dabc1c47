"""The turns of a chat with tools as a model's template takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from localspec.protocol.requests import ChatPrompt, Message, Tool, ToolCall
from localspec.tools.families import HERMES, Family, as_json

ABOUT = """# Tools

You may call these functions; each line is one, with the JSON schema of its arguments:
<tools>
{tools}
</tools>

To call one, write a JSON object with its name and arguments between these marks, and nothing after it:
<tool_call>
{{"name": <name>, "arguments": <arguments>}}
</tool_call>"""
"""for a template without tools: in the system message"""


def turns_for(prompt: ChatPrompt, family: Family | None) -> ChatPrompt:
    """``prompt`` for a model of ``family``; without one, tools, calls and results are written into texts."""
    if family is None:
        return _written(prompt)
    if not family.short_ids:
        return prompt
    return replace(prompt, messages=tuple(_shortened(message) for message in prompt.messages))


def _shortened(message: Message) -> Message:
    calls = tuple(replace(call, id=_short(call.id)) for call in message.tool_calls)
    return replace(message, tool_calls=calls, tool_call_id=_short(message.tool_call_id))


def _short(id: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", id)[-9:].rjust(9, "0") if id else ""


def _written(prompt: ChatPrompt) -> ChatPrompt:
    messages = [_as_text(message) for message in prompt.messages]
    if prompt.tools:
        about = ABOUT.format(tools="\n".join(as_json(to_builtins(tool)) for tool in prompt.tools))
        first = messages[0]
        if first.role == "system":
            messages[0] = replace(first, content=f"{first.content}\n\n{about}")
        else:
            messages.insert(0, Message("system", about))
    return replace(prompt, messages=tuple(messages), tools=())


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    head, tail = HERMES.heads[0], HERMES.tails[0]
    calls = (f"{head.replace('@', call.name)}{call.arguments}{tail}" for call in message.tool_calls)
    return Message(message.role, "\n".join(filter(None, (message.content, *calls))))


def guarded(prompt: ChatPrompt, guard: Callable[[Any], Any]) -> ChatPrompt:
    """``prompt`` with ``guard`` applied to all texts of messages, calls and tools."""

    def call(made: ToolCall) -> ToolCall:
        return ToolCall(guard(made.id), guard(made.name), as_json(guard(object_of(made.arguments))))

    def message(turn: Message) -> Message:
        calls, id = tuple(map(call, turn.tool_calls)), guard(turn.tool_call_id)
        return Message(turn.role, guard(turn.content), calls, id)

    def tool(given: Tool) -> Tool:
        texts = guard([given.name, given.description, given.parameters])
        return Tool(*texts)

    messages, tools = tuple(map(message, prompt.messages)), tuple(map(tool, prompt.tools))
    return replace(prompt, messages=messages, tools=tools, variables=guard(prompt.variables))


def object_of(arguments: str) -> Any:
    """The arguments of a call as a JSON value; an unfinished, wrong or too deeply nested text is one."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
