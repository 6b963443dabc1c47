"""Conversations in all dialects: messages, tools, and how the model thinks, as the daemon takes them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Annotated, Any, Unpack, get_args

import msgspec
from msgspec.structs import asdict

from localspec.client import Client, Following, Stream
from localspec.errors import ContextExceeded, InvalidOptions
from localspec.http.dialect import context_numbers
from localspec.http.endpoint import Refused
from localspec.http.models import model_of
from localspec.http.sampling import length_of
from localspec.protocol.messages import Tokenize
from localspec.protocol.options import LONGEST_SHOWN, Options
from localspec.protocol.requests import (
    MOST_TOOLS,
    ChatPrompt,
    Message,
    Result,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
)

ROLES: dict[str, Role] = {"developer": "system", **{role: role for role in get_args(Role)}}
TEXTS = ("text", "input_text", "output_text", "refusal", "reasoning_text")
"""the types of parts that are accepted"""
IMAGES = ("image", "image_url", "input_image")
NO_IMAGE = "[image left out: this model reads text]"
THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
"""the types of parts that are left out"""
REFUSED: Refused = {"function_call": ()}
"""fields of a message"""
CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none"}
CHOICES |= dict.fromkeys(("required", "any", "function", "tool"), "required")
"""kinds of ``tool_choice`` in all dialects; the last two name the tool"""
Effort = str | bool | None
"""how much a model should think in any dialect; None: as its template has it"""
LEVELS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
NO_THOUGHTS = (False, "none", "minimal")


class Part(msgspec.Struct):
    """A part of a message in any dialect; the fields behind ``thinking`` are Anthropic's."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    thinking: Content = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: Content | None = None


Content = str | list[Part]


class CalledFunction(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] = "{}"


class GivenCall(msgspec.Struct):
    function: CalledFunction
    id: str | None = None


class ChatMessage(msgspec.Struct):
    """A message of OpenAI's, llama.cpp's and Ollama's chats; Ollama's results of tools name no call, and
    ``thinking`` are its thoughts."""

    role: str
    content: Content | None = None
    tool_calls: list[GivenCall] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None


class GivenTool(msgspec.Struct):
    """A tool in any dialect: a ``function``, or its fields by themselves; ``input_schema`` is Anthropic's,
    ``tools`` are those of a namespace of OpenAI's."""

    type: str = "function"
    function: GivenTool | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    tools: list[GivenTool] = []


Messages = list[ChatMessage]
Tools = Annotated[list[GivenTool], msgspec.Meta(max_length=MOST_TOOLS)]


class ToolChoiceBody(msgspec.Struct):
    type: str = "auto"
    name: str | None = None
    function: ToolChoiceBody | None = None
    disable_parallel_tool_use: bool = False


def conversation_of(
    given: Sequence[ChatMessage], *, continues: bool | None = None
) -> tuple[tuple[Message, ...], bool]:
    """Return the messages, and True if the last one begins the answer. Raises :class:`InvalidOptions`."""
    messages: list[Message] = []
    waiting: defaultdict[str | None, deque[str]] = defaultdict(deque)  # ids of calls by tool, None: of any
    answered: set[str] = set()
    for each in given:
        if each.role == "tool":
            ids = waiting[each.tool_name]
            while ids and ids[0] in answered:
                ids.popleft()
            id = each.tool_call_id or next(iter(ids), "")
            answered.add(id)
            texts = (result_of(each.content), *([NO_IMAGE] * len(each.images or ())))
            messages.append(Message("tool", "\n".join(filter(None, texts)), tool_call_id=id))
            continue
        if each.images:
            raise refuse_type("content", "images", "Leave images out.")
        made = enumerate(each.tool_calls or ())
        calls = tuple(_call(call, f"call_{len(messages)}_{i}") for i, call in made)
        for call in calls:
            waiting[call.name].append(call.id)
            waiting[None].append(call.id)
        thoughts = each.reasoning_content or each.reasoning or each.thinking or ""
        messages.append(message_of(each.role, join_parts(each.content), calls, thoughts))
    return split_turns(messages, continues=continues)


def split_turns(messages: list[Message], *, continues: bool | None) -> tuple[tuple[Message, ...], bool]:
    """Return the messages, and True if the last one is the beginning of the answer: a text of the assistant,
    unless ``continues`` is False. Raises :class:`InvalidOptions`."""
    is_begun = bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls
    if continues and not is_begun:
        message = "continue_final_message is true, but the last message is not the assistant's"
        remedy = "End messages with one of the assistant, or leave continue_final_message out."
        raise InvalidOptions(message, remedy)
    if is_begun and continues is not False and len(messages) > 1 and messages[-2].role == "assistant":
        raise InvalidOptions("messages ends with two assistant messages", "Join them into one message.")
    return tuple(messages), is_begun and continues is not False


def message_of(role: str, content: str, calls: tuple[ToolCall, ...] = (), thinking: str = "") -> Message:
    """Return a message of the wire. Raises :class:`InvalidOptions` for an unknown role."""
    if role not in ROLES:
        raise InvalidOptions(f"there is no role named {role[:60]!r}", f"Roles are {', '.join(ROLES)}.")
    return Message(ROLES[role], content, calls, thinking=thinking)


def join_parts(content: Content | None) -> str:
    """Return the parts joined by line breaks, as llama.cpp's server does. Raises :class:`InvalidOptions`."""
    if not isinstance(content, list):
        return content or ""
    parts = [part for part in content if part.type not in THOUGHTS]
    return "\n".join(map(_text, parts))


def result_of(content: Content | None) -> str:
    """Return a tool's result; a note stands in the place of an image."""
    if isinstance(content, list):
        content = [Part(text=NO_IMAGE) if part.type in IMAGES else part for part in content]
    return join_parts(content)


def _text(part: Part) -> str:
    text = part.refusal if part.text is None else part.text
    if text is None or part.type not in TEXTS:
        raise refuse_type("content", part.type, "Send parts of type text.")
    return text


def _call(given: GivenCall, id: str) -> ToolCall:
    arguments = given.function.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(given.id or id, given.function.name, arguments or "{}")


def refuse_type(what: str, type: str, remedy: str) -> InvalidOptions:
    return InvalidOptions(f"{what} of the type {type[:LONGEST_SHOWN]!r} is not supported", remedy)


def chat_of(
    turns: tuple[tuple[Message, ...], bool],
    variables: dict[str, Any],
    tools: Tools | None = None,
    choice: str | ToolChoiceBody | None = None,
    parallel: bool | None = None,
    *,
    extras: tuple[str, ...] = (),
) -> ChatPrompt:
    """Return a request's chat, without tools of the types ``extras``. Raises :class:`InvalidOptions`."""
    if not isinstance(choice, ToolChoiceBody):
        choice = ToolChoiceBody(choice or "auto")
    if choice.type not in CHOICES:
        raise refuse_type("tool_choice", choice.type, "Give auto, none, required, or the name of a function.")
    messages, prefilled = turns
    tool = (choice.function or choice).name
    if choice.type in ("function", "tool") and not tool:
        raise InvalidOptions("tool_choice names no tool", "Give the name of one, or auto, none or required.")
    return ChatPrompt(
        messages,
        prefilled,
        variables,
        tools=tuple(_tool(each) for each in tools or () if each.type not in extras),
        tool_choice=CHOICES[choice.type],
        tool=tool,
        parallel_tool_calls=parallel is not False and not choice.disable_parallel_tool_use,
    )


def answer(client: Client, chat: ChatPrompt, options: Options, **how: Unpack[Following]) -> Stream[Result]:
    return client.generate(options=options, **asdict(chat), **how)


async def count_chat_tokens(client: Client, chat: ChatPrompt, model: str | None) -> dict[str, Any]:
    """Return the number of tokens of a chat, also of one that the context does not hold."""
    try:
        found = await client.tokenize(Tokenize(text=chat, model=model_of(model)))
        return {"input_tokens": len(found.tokens)}
    except ContextExceeded as error:
        return {"input_tokens": context_numbers(error)["n_prompt_tokens"]}


def _tool(given: GivenTool) -> Tool:
    if given.type != "function" and given.input_schema is None:
        raise refuse_type("a tool", given.type, "Give tools of the type function, and leave all others out.")
    given = given.function or given
    if not given.name:
        raise InvalidOptions("a tool has no name", "Give each tool its name.")
    return Tool(given.name, given.description or "", given.parameters or given.input_schema or {})


def thinking_of(effort: Effort) -> dict[str, Any]:
    """Return the variables by which templates let a model think, or not; none if nothing was requested.
    Raises :class:`InvalidOptions` for an unknown effort."""
    if effort is None:
        return {}
    if isinstance(effort, str) and effort not in (*LEVELS, *NO_THOUGHTS):
        message = f"the effort {effort[:LONGEST_SHOWN]!r} is not supported"
        raise InvalidOptions(message, f"Give none, minimal, {', '.join(LEVELS)}, or leave it out.")
    thinks = effort not in NO_THOUGHTS
    level = {"reasoning_effort": LEVELS[effort]} if isinstance(effort, str) and effort in LEVELS else {}
    return {"enable_thinking": thinks, "thinking": thinks, **level}


def budget_of(effort: Effort, *limits: int | None) -> int | None:
    """Return the tokens that thoughts may have: none without an effort, however the template takes it, else
    the first limit that is given."""
    return 0 if effort is not None and effort in NO_THOUGHTS else length_of(*limits)
