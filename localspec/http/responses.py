"""OpenAI's responses: items in, items out, whole or as server-sent events, kept for the next turn.

Source: <https://platform.openai.com/docs/api-reference/responses>. The last responses are kept in memory, for
``previous_response_id`` and references to their items, until the daemon ends; ``store`` false keeps none.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import cache
from http import HTTPStatus
from itertools import chain, count
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from localspec.client import Client
from localspec.errors import LocalspecError
from localspec.http import answers, openai, sampling
from localspec.http import conversation as chats
from localspec.http.answers import AnswerBlock, BlockStep, Pieces, blocks_of, steps_of, uncut
from localspec.http.conversation import Content, GivenTool, ToolChoiceBody, Tools, join_parts, message_of
from localspec.http.dialect import SSE, Dialect, sentence
from localspec.http.endpoint import MAX_BODY, Answer, BodyTooLarge, Endpoint, PathId, Refused
from localspec.http.models import DEFAULT_MODEL
from localspec.http.sampling import OutputConfig, TimedSampling, options_of
from localspec.protocol.messages import StreamProgress
from localspec.protocol.options import LONGEST_SHOWN
from localspec.protocol.requests import ChatPrompt, Message, Result, ToolCall
from localspec.tools.families import as_json

MOST_KEPT = 256
MOST_KEPT_BYTES = 32 << 20
EXTRAS = ("web_search", "web_search_preview", "image_generation", "custom")
"""types of tools that clients send with every request, and do without"""
IN_SPACE = "/"
"""between a namespace and a function of it, in the name that the model reads; OpenAI's names have none"""
PREFIXES = {"thinking": "rs", "answer": "msg", "call": "fc"}
"""of the ids of items: the response's own id and the item's number follow"""
TEXTS = {"thinking": "reasoning_text", "answer": "output_text", "call": "function_call_arguments"}
"""names of the events and of the parts that have an item's text"""


class Item(msgspec.Struct):
    """An item of a conversation; a custom tool's call has ``input``."""

    type: str = "message"
    role: str = ""
    content: Content | None = None
    id: str | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str = "{}"
    input: str = ""
    output: Content | None = None


class ResponsesBody(TimedSampling, kw_only=True):
    input: str | list[Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: Tools | None = None
    tool_choice: str | ToolChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    reasoning: OutputConfig | None = None
    text: OutputConfig | None = None
    truncation: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text is not None and self.text.format is not None:
            self.response_format = self.text.format
        if self.max_output_tokens is not None:
            self.n_predict = self.max_output_tokens


REFUSED: Refused = {
    **sampling.REFUSED,
    "n": (1,),
    "background": (False,),
    "top_logprobs": (0,),
    **dict.fromkeys(("conversation", "prompt"), ()),
}


class ResponseNotFound(LocalspecError):
    code = "response_not_found"
    default_remedy = "Send the whole conversation as input."


class StoredResponse(NamedTuple):
    """A response, and the conversation up to its end, without the instructions."""

    response: dict[str, Any]
    messages: tuple[Message, ...]


class Responses:
    """The last responses by their ids, as JSON, bounded by number and bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def keep(self, response: dict[str, Any], messages: tuple[Message, ...]) -> None:
        kept = self._kept[response["id"]] = msgspec.json.encode(StoredResponse(response, messages))
        self._size += len(kept)
        while len(self._kept) > MOST_KEPT or self._size > MOST_KEPT_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])

    def find(self, id: str) -> StoredResponse:
        """Return a response. Raises :class:`ResponseNotFound`."""
        if id not in self._kept:
            raise ResponseNotFound(f"there is no response {id[:LONGEST_SHOWN]!r}")
        self._kept.move_to_end(id)
        return msgspec.json.decode(self._kept[id], type=StoredResponse)

    def item(self, id: str) -> Item:
        """Return an item of a response. Raises :class:`ResponseNotFound`."""
        own, _, number = id.partition("_")[2].partition("_")
        output = self.find(f"resp_{own}").response["output"]
        found = next((item for item in output if item["id"] == id), None)
        if found is None:
            raise ResponseNotFound(f"there is no item {id[:LONGEST_SHOWN]!r}")
        return msgspec.convert(found, Item)

    def drop(self, id: str) -> None:
        """Forget a response. Raises :class:`ResponseNotFound`."""
        self.find(id)
        self._size -= len(self._kept.pop(id))


RESPONSES = Responses()


async def respond(client: Client, body: ResponsesBody) -> Answer:
    messages, asked = chat_by(body)
    names = {"max_tokens": "max_output_tokens"}
    overflow = "cut" if body.truncation == "auto" else None
    options = options_of(body, names, think=chats.budget_of(effort_of(body)), overflow=overflow)
    stream = chats.answer(client, asked, options, **body.generating())
    head = _head(body, options.model or DEFAULT_MODEL)
    if body.stream:
        return _events(body, head, messages, await Pieces([stream], body).begin())
    return _complete_response(body, head, messages, await stream.result())


async def count_tokens(client: Client, body: ResponsesBody) -> Answer:
    _, asked = chat_by(body)
    return {"object": "response.input_tokens", **await chats.count_chat_tokens(client, asked, body.model)}


def effort_of(body: ResponsesBody) -> str | None:
    return (body.reasoning or OutputConfig()).effort


def chat_by(body: ResponsesBody) -> tuple[tuple[Message, ...], ChatPrompt]:
    """Return the messages of a body without the instructions, and the chat that it asks for. Raises
    :class:`InvalidOptions`, :class:`ResponseNotFound`."""
    before = RESPONSES.find(body.previous_response_id).messages if body.previous_response_id else ()
    given = [Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    messages = messages_of(before, given)
    system = (Message("system", body.instructions),) if body.instructions else ()
    turns = chats.split_turns([*system, *messages], continues=False)
    variables = chats.thinking_of(effort_of(body))
    choice, parallel = body.tool_choice, body.parallel_tool_calls
    tools = [*functions_of(body.tools or ())]
    return messages, chats.chat_of(turns, variables, tools, choice, parallel, extras=EXTRAS)


async def get_response(client: Client, body: PathId) -> Answer:
    return RESPONSES.find(body.id).response


async def delete(client: Client, body: PathId) -> Answer:
    RESPONSES.drop(body.id)
    return {"id": body.id, "object": "response", "deleted": True}


def functions_of(tools: Iterable[GivenTool]) -> Iterator[GivenTool]:
    """Yield the tools, with those of a namespace in its place, under their full names."""
    for tool in tools:
        if tool.type == "namespace":
            yield from (replace(each, name=_full_name(tool.name, each.name)) for each in tool.tools)
        else:
            yield tool


def _full_name(namespace: str | None, name: str | None) -> str:
    return f"{namespace}{IN_SPACE}{name}" if namespace else name or ""


def messages_of(before: Iterable[Message], given: Iterable[Item]) -> tuple[Message, ...]:
    """Return a conversation as messages. Raises :class:`InvalidOptions`, :class:`ResponseNotFound`, and
    :class:`BodyTooLarge` if what it refers to makes it longer than a body may be."""
    item_at = cache(RESPONSES.item)
    items = (item_at(item.id or "") if item.type == "item_reference" else item for item in given)
    parts: list[Message] = []
    left = MAX_BODY
    for part in chain(before, map(_message_of, items)):
        left -= sum(map(len, (part.content, part.thinking, *(call.arguments for call in part.tool_calls))))
        if left < 0:  # references to a long item are short
            raise BodyTooLarge(f"the conversation is longer than {MAX_BODY} characters")
        parts.append(part)
    return tuple(_turns(parts))


def _message_of(item: Item) -> Message:
    if item.type == "message":
        return message_of(item.role, join_parts(item.content))
    if item.type == "reasoning":
        return Message("assistant", "", thinking=join_parts(item.content))
    if item.type in ("function_call", "custom_tool_call"):
        arguments = item.arguments if item.type == "function_call" else as_json({"input": item.input})
        call = ToolCall(item.call_id, _full_name(item.namespace, item.name), arguments)
        return Message("assistant", "", (call,))
    if item.type in ("function_call_output", "custom_tool_call_output"):
        return Message("tool", chats.result_of(item.output), tool_call_id=item.call_id)
    raise chats.refuse_type("an item", item.type, "Send messages, function calls and their outputs.")


def _turns(parts: Iterable[Message]) -> list[Message]:
    """Return the messages; thoughts, calls and one text of the assistant in a row are one turn."""
    turns: list[list[Message]] = []
    for part in parts:
        turn = turns[-1] if turns and part.role == turns[-1][0].role == "assistant" else None
        if turn is None or (part.content and any(each.content for each in turn)):
            turns.append(turn := [])
        turn.append(part)
    return [turn[0] if len(turn) == 1 else _join_parts(turn) for turn in turns]


def _join_parts(parts: list[Message]) -> Message:
    calls = tuple(call for each in parts for call in each.tool_calls)
    text, thinking = "".join(each.content for each in parts), [each.thinking for each in parts]
    return Message("assistant", text, calls, thinking="\n".join(filter(None, thinking)))


def _head(body: ResponsesBody, model: str) -> dict[str, Any]:
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "previous_response_id": body.previous_response_id,
        "usage": None,
    }


def _complete_response(
    body: ResponsesBody, head: dict[str, Any], messages: tuple[Message, ...], result: Result
) -> dict[str, Any]:
    """Return the response of a complete answer; keep it unless the body says otherwise."""
    is_cut = openai.FINISH.get(uncut(result).finish_reason) == "length"
    response = {
        **head,
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": [item_of(block, head["id"]) for block in blocks_of(result)],
        "usage": {
            "input_tokens": result.prompt_tokens,
            "input_tokens_details": {"cached_tokens": result.cached_tokens},
            "output_tokens": result.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": result.thinking_tokens},
            "total_tokens": result.prompt_tokens + result.completion_tokens,
        },
        "localspec": answers.statistics(result),
    }
    if body.store is not False:
        turn = message_of("assistant", result.text, result.tool_calls, result.thinking)
        RESPONSES.keep(response, (*messages, turn))
    return response


def part_of(block: AnswerBlock) -> dict[str, Any]:
    more: dict[str, Any] = {"annotations": [], "logprobs": []} if block.channel == "answer" else {}
    return {"type": TEXTS[block.channel], "text": block.text, **more}


def item_of(block: AnswerBlock, response: str, *, begun: bool = False) -> dict[str, Any]:
    """Return a block as an item of a response; one in progress has no content yet."""
    status = "in_progress" if begun else "incomplete" if block.is_cut else "completed"
    id = f"{PREFIXES[block.channel]}_{response.removeprefix('resp_')}_{block.number}"
    item = {"id": id, "status": status}
    content = [] if begun else [part_of(block)]
    if (call := block.call) is not None:
        space, _, name = call.name.rpartition(IN_SPACE)
        named = {"type": "function_call", "call_id": call.id, "name": name}
        named |= {"namespace": space} if space else {}
        return {**item, **named, "arguments": block.text if content else ""}
    if block.channel == "thinking":
        return {**item, "type": "reasoning", "summary": [], "content": content}
    return {**item, "type": "message", "role": "assistant", "content": content}


def events_of(step: BlockStep, response: str) -> Iterator[dict[str, Any]]:
    block, is_call = step.block, step.block.call is not None
    is_begun, name = step.kind == "begun", f"response.{TEXTS[block.channel]}"
    item = item_of(block, response, begun=is_begun)
    place = {"output_index": block.number}
    within = {**place, "item_id": item["id"]} | ({} if is_call else {"content_index": 0})
    rated: dict[str, Any] = {"logprobs": []} if block.channel == "answer" else {}
    if is_begun:
        yield {"type": "response.output_item.added", **place, "item": item}
        if not is_call:
            empty = part_of(AnswerBlock(block.number, block.channel))
            yield {"type": "response.content_part.added", **within, "part": empty}
    elif step.kind == "grown":
        yield {"type": f"{name}.delta", **within, "delta": step.text, **rated}
    else:
        whole = {"arguments": block.text, "name": item["name"]} if is_call else {"text": block.text}
        if not block.is_cut:
            yield {"type": f"{name}.done", **within, **whole, **rated}
        if not is_call:
            yield {"type": "response.content_part.done", **within, "part": part_of(block)}
        yield {"type": "response.output_item.done", **place, "item": item}


async def _events(
    body: ResponsesBody, head: dict[str, Any], messages: tuple[Message, ...], pieces: Pieces
) -> AsyncGenerator[dict[str, Any] | None]:
    numbers = count()

    def event_of(response: dict[str, Any], kind: str) -> dict[str, Any]:
        return {"type": f"response.{kind}", "response": response, "sequence_number": next(numbers)}

    yield event_of(head, "created")
    yield event_of(head, "in_progress")
    try:
        async for event, more in steps_of(pieces):
            if isinstance(event, BlockStep):
                for each in events_of(event, head["id"]):
                    yield {**each, **more, "sequence_number": next(numbers)}
            elif isinstance(event, StreamProgress):
                yield event_of(head, "in_progress") | more
            elif event is None:
                yield None
            else:
                response = _complete_response(body, head, messages, event)
                yield event_of(response, response["status"]) | {"timings": answers.timings(event)}
    except LocalspecError as error:
        why = {"code": openai.CODES.get(error.code, error.code), "message": sentence(error)}
        yield event_of({**head, "error": why, "status": "failed"}, "failed")


DIALECT = Dialect(
    "openai",
    (
        Endpoint("POST", "/v1/responses", ResponsesBody, respond, REFUSED),
        Endpoint("POST", "/responses", ResponsesBody, respond, REFUSED),
        Endpoint("POST", "/v1/responses/input_tokens", ResponsesBody, count_tokens, REFUSED),
        Endpoint("GET", "/v1/responses/{id}", PathId, get_response),
        Endpoint("DELETE", "/v1/responses/{id}", PathId, delete),
    ),
    openai.error,
    SSE._replace(end=b"", named=True),
    {"response_not_found": HTTPStatus.NOT_FOUND},
)
