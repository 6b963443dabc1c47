"""Anthropic's dialect: messages, whole or as server-sent events, and the number of their tokens.

Source: <https://docs.anthropic.com/en/api/messages>. ``cache_control``, ``metadata``, ``service_tier``,
and ``context_management`` are accepted and have no effect: every prompt reuses the prefix that is cached.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from localspec.client import Client
from localspec.errors import LocalspecError
from localspec.http import conversation as chats
from localspec.http import sampling
from localspec.http.answers import AnswerBlock, BlockStep, Pieces, blocks_of, statistics, steps_of, uncut
from localspec.http.conversation import ChatMessage, Content, Messages, Part, ToolChoiceBody, Tools
from localspec.http.dialect import SSE, Dialect, context_numbers, sentence
from localspec.http.endpoint import Answer, Endpoint, Refused
from localspec.http.models import DEFAULT_MODEL
from localspec.http.sampling import Format, OutputConfig, TimedSampling, options_of
from localspec.protocol.messages import StreamProgress
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, FinishReason, Message, Result, ToolCall

BILLING = "x-anthropic-billing-header"
"""begins a line of system prompts that is another one in each request: with it no prefix would be cached"""
REASONS: dict[FinishReason, str] = {
    "length": "max_tokens",
    "deadline": "max_tokens",
    "context_full": "model_context_window_exceeded",
    "tool_calls": "tool_use",
}
"""``stop_reason`` by finish reason, for answers that no stop string ended; all others are ``end_turn``"""
ERRORS = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}
DELTAS = {
    "answer": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
"""the type of a delta and the field of its text, by channel"""


class Thinking(msgspec.Struct):
    type: str
    budget_tokens: int | None = None


class MessagesBody(TimedSampling, kw_only=True):
    messages: Messages
    system: Content | None = None
    stop_sequences: list[str] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoiceBody | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.return_progress = True  # the first event has the size of the prompt
        if self.stop_sequences is not None:
            self.stop = self.stop_sequences
        config = self.output_config or OutputConfig()
        self.response_format = config.format or self.output_format or self.response_format

    @property
    def thinks(self) -> bool:
        return self.thinking is not None and self.thinking.type != "disabled"


REFUSED: Refused = {**sampling.REFUSED, "n": (1,), "mcp_servers": ([],), "container": ()}


async def messages(client: Client, body: MessagesBody) -> Answer:
    asked, names = chat_by(body), {"stop": "stop_sequences"}
    budget = chats.budget_of(body.thinks, body.thinking.budget_tokens if body.thinking else None)
    options = options_of(body, names, think=budget)
    stream = chats.answer(client, asked, options, **body.generating())
    if body.stream:
        return _events(body, _head(options), await Pieces([stream], body).begin())
    result = await stream.result()
    content = [content_of(each) for each in blocks_of(result, thoughts=body.thinks) if not each.is_cut]
    return {**_head(options), "content": content, **_end(result), "localspec": statistics(result)}


async def count(client: Client, body: MessagesBody) -> Answer:
    return await chats.count_chat_tokens(client, chat_by(body), body.model)


def chat_by(body: MessagesBody) -> ChatPrompt:
    """Return the chat that a body asks for. Raises :class:`InvalidOptions`."""
    system = chats.join_parts(body.system)
    if system.startswith(BILLING):
        system = system.partition("\n")[2]
    found = [Message("system", system)] if system else []
    found += (message for each in body.messages for message in _messages(each))
    turns, effort = chats.split_turns(found, continues=None), body.output_config and body.output_config.effort
    variables = chats.thinking_of(str(effort or "") or True if body.thinks else False)
    return chats.chat_of(turns, variables, body.tools, body.tool_choice)


def _messages(given: ChatMessage) -> Iterator[Message]:
    """Yield the results of tools in a message, then its text and its calls."""
    blocks = given.content if isinstance(given.content, list) else [Part(text=given.content or "")]
    spoken = [block for block in blocks if block.type not in ("tool_result", "tool_use")]
    calls = []
    for block in blocks:
        if block.type == "tool_result":
            yield Message("tool", chats.result_of(block.content), tool_call_id=block.tool_use_id)
        elif block.type == "tool_use":
            calls.append(ToolCall(block.id, block.name, msgspec.json.encode(block.input).decode()))
    thoughts = [chats.join_parts(block.thinking) for block in spoken if block.type in chats.THOUGHTS]
    if len(thoughts) < len(spoken) or calls:
        yield chats.message_of(given.role, chats.join_parts(spoken), tuple(calls), "\n".join(thoughts))


def _head(options: Options) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": options.model or DEFAULT_MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _end(result: Result) -> dict[str, Any]:
    stopped = result.finish_reason == "stop_string" and result.stop_text
    return {
        "stop_reason": "stop_sequence" if stopped else REASONS.get(uncut(result).finish_reason, "end_turn"),
        "stop_sequence": result.stop_text if stopped else None,
        "usage": _usage(result.prompt_tokens, result.cached_tokens, result.completion_tokens),
    }


def _usage(prompt: int, cached: int, answered: int) -> dict[str, int]:
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answered,
    }


def content_of(block: AnswerBlock) -> dict[str, Any]:
    if block.call is not None:
        call = ToolCall(block.call.id, block.call.name, block.text)
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.object or {}}
    if block.channel == "thinking":
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "text", "text": block.text}


def events_of(step: BlockStep) -> Iterator[dict[str, Any]]:
    """Yield the events of a step. Thoughts end with a signature, which is empty here. A call comes whole: one
    that is cut would be read as one without arguments."""
    block, place = step.block, {"index": step.block.number}
    is_call = block.call is not None
    if is_call and (step.kind != "ended" or block.is_cut):
        return
    if step.kind == "begun" or is_call:
        empty = content_of(AnswerBlock(block.number, block.channel, block.call))
        yield {"type": "content_block_start", **place, "content_block": empty}
    if step.kind == "grown" or is_call:
        name, field = DELTAS[block.channel]
        delta = {"type": name, field: step.text or block.text}
        yield {"type": "content_block_delta", **place, "delta": delta}
    if step.kind == "ended":
        if block.channel == "thinking":
            signed = {"type": "signature_delta", "signature": ""}
            yield {"type": "content_block_delta", **place, "delta": signed}
        yield {"type": "content_block_stop", **place}


async def _events(
    body: MessagesBody, head: dict[str, Any], pieces: Pieces
) -> AsyncGenerator[dict[str, Any] | None]:
    """Yield the events of an answer. The first one has the usage that is known then."""
    has_begun = False
    async for event, _ in steps_of(pieces, thoughts=body.thinks):
        if event is None:
            yield None
            continue
        if not has_begun:
            read = (event.total, event.cached) if isinstance(event, StreamProgress) else (0, 0)
            yield {"type": "message_start", "message": {**head, "usage": _usage(*read, 0)}}
            yield {"type": "ping"}
            has_begun = True
        if isinstance(event, BlockStep):
            for each in events_of(event):
                yield each
        elif isinstance(event, Result):
            end = _end(event)
            usage = end.pop("usage")
            yield {"type": "message_delta", "delta": end, "usage": usage, "localspec": statistics(event)}
            yield {"type": "message_stop"}


def error(error: LocalspecError, status: HTTPStatus) -> Any:
    other = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    text = sentence(error)
    if numbers := context_numbers(error):  # clients know it by these words
        text = f"prompt is too long: {numbers['n_prompt_tokens']} tokens > {numbers['n_ctx']} maximum. {text}"
    return {"type": "error", "error": {"type": ERRORS.get(status, other), "message": text}}


DIALECT = Dialect(
    "anthropic",
    (
        Endpoint("POST", "/v1/messages", MessagesBody, messages, REFUSED),
        Endpoint("POST", "/v1/messages/count_tokens", MessagesBody, count, REFUSED),
    ),
    error,
    SSE._replace(end=b"", alive=b'event: ping\ndata: {"type": "ping"}\n\n', named=True),
)
