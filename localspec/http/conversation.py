"""Messages of a chat, as the dialects say them: their roles, their parts, and an answer that is begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from localspec.errors import InvalidOptions
from localspec.http.fields import refuse
from localspec.protocol.requests import Message

ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}
TEXTS = ("text", "input_text")
"""the types of parts that are taken"""
REFUSED: dict[str, tuple[Any, ...]] = {"tool_calls": ([],), "function_call": (), "images": ([],)}


class Part(msgspec.Struct):
    type: str
    text: str | None = None


class Said(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    images: list[Any] | None = None


class Conversation(NamedTuple):
    """``prefilled``: the last message is the beginning of the answer."""

    messages: tuple[Message, ...]
    prefilled: bool


def conversation_of(said: Sequence[Said], *, goes_on: bool | None = None) -> Conversation:
    """The messages in our words. A last one of the assistant is gone on with, unless ``goes_on`` is false.

    Raises :class:`InvalidOptions`.
    """
    for each in said:
        refuse(each, REFUSED)
    messages = tuple(message_of(each.role, _text(each.content)) for each in said)
    is_begun = bool(messages) and messages[-1].role == "assistant"
    if goes_on and not is_begun:
        raise InvalidOptions(
            "continue_final_message goes on with a message of the assistant, and the last one is none",
            "Let one be the last, or leave continue_final_message out.",
        )
    if is_begun and goes_on is not False and len(messages) > 1 and messages[-2].role == "assistant":
        raise InvalidOptions("the last two messages are the assistant's", "Make one of them.")
    return Conversation(messages, is_begun and goes_on is not False)


def message_of(role: str, content: str) -> Message:
    """A message in our words; raises :class:`InvalidOptions`."""
    if role not in ROLES:
        raise InvalidOptions(f"there is no role named {role[:60]!r}", f"Roles are {', '.join(ROLES)}.")
    return Message(ROLES[role], content)


def _text(content: str | list[Part] | None) -> str:
    """A line for each part, as llama.cpp's server joins them."""
    if isinstance(content, list):
        for part in content:
            if part.text is None or part.type not in TEXTS:
                raise InvalidOptions(
                    f"content of the type {part.type[:60]!r} is not taken", "Send texts alone."
                )
        return "\n".join(part.text or "" for part in content)
    return content or ""
