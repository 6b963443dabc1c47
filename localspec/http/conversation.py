"""Messages of a chat in the dialects: their roles, their parts, and the beginning of an answer."""

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
"""the types of parts that are accepted"""
REFUSED: dict[str, tuple[Any, ...]] = {"tool_calls": ([],), "function_call": (), "images": ([],)}


class Part(msgspec.Struct):
    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    images: list[Any] | None = None


class Conversation(NamedTuple):
    """Messages of a request; ``prefilled`` is True if the last one is the beginning of the answer."""

    messages: tuple[Message, ...]
    prefilled: bool


def conversation_of(given: Sequence[ChatMessage], *, continues: bool | None = None) -> Conversation:
    """Return a request's messages; a last one of the assistant is continued unless ``continues`` is False.

    Raises :class:`InvalidOptions`.
    """
    for each in given:
        refuse(each, REFUSED)
    messages = tuple(message_of(each.role, _text(each.content)) for each in given)
    is_begun = bool(messages) and messages[-1].role == "assistant"
    if continues and not is_begun:
        raise InvalidOptions(
            "continue_final_message is true, but the last message is not the assistant's",
            "End messages with one of the assistant, or leave continue_final_message out.",
        )
    if is_begun and continues is not False and len(messages) > 1 and messages[-2].role == "assistant":
        raise InvalidOptions("messages ends with two assistant messages", "Join them into one message.")
    return Conversation(messages, is_begun and continues is not False)


def message_of(role: str, content: str) -> Message:
    """Return a message of the wire. Raises :class:`InvalidOptions` for an unknown role."""
    if role not in ROLES:
        raise InvalidOptions(f"there is no role named {role[:60]!r}", f"Roles are {', '.join(ROLES)}.")
    return Message(ROLES[role], content)


def _text(content: str | list[Part] | None) -> str:
    """Return the parts joined by line breaks, as llama.cpp's server does. Raises :class:`InvalidOptions`."""
    if isinstance(content, list):
        for part in content:
            if part.text is None or part.type not in TEXTS:
                raise InvalidOptions(
                    f"content of the type {part.type[:60]!r} is not supported", "Send parts of type text."
                )
        return "\n".join(part.text or "" for part in content)
    return content or ""
