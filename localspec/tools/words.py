"""An answer in words from the results of tool calls, where a small model goes on to call."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec.structs import replace

from localspec.protocol.options import Options
from localspec.protocol.requests import Message

WORDS = r"[\p{L}\p{N}][^{}`]*"
"""a text that is no JSON, and no fence"""
FENCED = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
REQUEST = "Answer in a sentence, from what was returned."


def may_be_json(question: str, options: Options) -> bool:
    """Return True if the answer to a question may be JSON: the question names it, or the options a form."""
    return "json" in question.lower() or options.has_form


def is_written_call(text: str) -> bool:
    """Return True if a whole text is a call in JSON, fenced or not: one of a tool that is not offered."""
    fenced = FENCED.fullmatch(text.strip())
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    return isinstance(value.get("arguments", value.get("parameters")), dict)


def ask_in_words(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a chat without tools that asks the last question of ``messages`` again, with the results of its
    calls; earlier turns are there without calls and results."""
    at = max(i for i, message in enumerate(messages) if message.role == "user")
    calls = {call.id: call for message in messages[at:] for call in message.tool_calls}
    results = [
        f"{call.name} {call.arguments} returned:\n{message.content}"
        for message in messages[at:]
        if (call := calls.get(message.tool_call_id)) is not None
    ]
    before = [replace(each, tool_calls=()) for each in messages[:at] if each.role != "tool" and each.content]
    return (*before, Message("user", "\n\n".join((messages[at].content, *results, REQUEST))))


def limit_to_words(options: Options) -> Options:
    """Return options for an answer in words; a form that they have stays."""
    return options if may_be_json("", options) else replace(options, regex=WORDS)
