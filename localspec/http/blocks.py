"""The parts of an answer in their order, for dialects that number them: thoughts, texts and calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from localspec.http.answers import Pieces
from localspec.protocol.messages import StreamProgress
from localspec.protocol.requests import CallBegun, Channel, Result, ToolCall


@dataclass
class AnswerBlock:
    """A part of an answer, the ``number``-th of it; ``call`` is that of the channel ``call``."""

    number: int
    channel: Channel
    call: CallBegun | None = None
    text: str = ""

    @property
    def is_cut(self) -> bool:
        """True for a call whose arguments are cut."""
        return self.call is not None and ToolCall("", "", self.text).object is None


class BlockStep(NamedTuple):
    """A change of a block: ``text`` is what it grew by."""

    kind: Literal["begun", "grown", "ended"]
    block: AnswerBlock
    text: str = ""


async def steps_of(
    pieces: Pieces, *, thoughts: bool = True
) -> AsyncIterator[tuple[BlockStep | StreamProgress | Result | None, dict[str, Any]]]:
    """Yield the steps of an answer's blocks, the progress of its prompt, and its result, each with further
    fields for its events, and None in a silence; ``thoughts``: with those of the channel ``thinking``."""
    block, number = None, 0
    async for piece in pieces:
        event, more = (None, {}) if piece is None else (piece.event, piece.more)
        if event is None or isinstance(event, StreamProgress):
            yield event, more
            continue
        if isinstance(event, Result):
            if block is None:  # an answer without a text has an empty one
                yield BlockStep("begun", block := AnswerBlock(number, "answer")), {}
            yield BlockStep("ended", block), {}
            yield event, more
            continue
        if (event.channel == "thinking" and not thoughts) or not (event.text or event.call):
            continue
        if block is not None and (block.channel, block.call) != (event.channel, event.call):
            yield BlockStep("ended", block), {}
            block, number = None, number + 1
        if block is None:
            block = AnswerBlock(number, event.channel, event.call)
            yield BlockStep("begun", block), {}
        block.text += event.text
        if event.text:
            yield BlockStep("grown", block, event.text), more


def blocks_of(result: Result, *, thoughts: bool = True) -> list[AnswerBlock]:
    """Return the blocks of a complete answer."""
    found = [AnswerBlock(0, "thinking", None, result.thinking)] if thoughts and result.thinking else []
    if result.text or not (found or result.tool_calls):
        found.append(AnswerBlock(0, "answer", None, result.text))
    for i, call in enumerate(result.tool_calls):
        found.append(AnswerBlock(0, "call", CallBegun(i, call.id, call.name), call.arguments))
    for number, block in enumerate(found):
        block.number = number
    return found
