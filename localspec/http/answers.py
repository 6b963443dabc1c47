"""Answers to one request: whole, in pieces or in numbered blocks, with timings and probabilities."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from localspec.client import Stream
from localspec.errors import ShuttingDown
from localspec.http.endpoint import SILENCE_S
from localspec.http.sampling import TimedSampling
from localspec.protocol.messages import StreamDelta, StreamProgress
from localspec.protocol.requests import CallBegun, Channel, Result, Token, ToolCall


class AnswerPiece(NamedTuple):
    number: int
    event: StreamDelta | StreamProgress | Result
    more: dict[str, Any] = {}


async def whole(streams: Iterable[Stream[Result]]) -> list[tuple[list[Token], Result]]:

    async def collect_answer(stream: Stream[Result]) -> tuple[list[Token], Result]:
        tokens = [token async for delta in stream if delta.channel == "answer" for token in delta.tokens]
        return tokens, await stream.result()

    return await asyncio.gather(*map(collect_answer, streams))


class Pieces:
    """The pieces of all answers as they come, and None after each :data:`SILENCE_S` without one; with the
    progress of their prompts and the timings that the body asks for. Iterating raises the first error of any
    answer. One that is still queued delays none of the others."""

    def __init__(self, streams: Sequence[Stream[Result]], body: TimedSampling | None = None) -> None:
        self._body = body or TimedSampling()
        self._left = len(streams)
        self._waiting: deque[AnswerPiece | BaseException] = deque()
        self._arrived = asyncio.Event()
        for number, stream in enumerate(streams):
            stream.forward(partial(self._take, number, Pace()))

    async def begin(self) -> Self:
        """Wait for the first piece, up to :data:`SILENCE_S`. Raises its error, which has its own HTTP status
        until then."""
        if await self._arrive() and isinstance(first := self._waiting[0], BaseException):
            raise first
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnswerPiece | None:
        if not self._left:
            raise StopAsyncIteration
        if not await self._arrive():
            return None
        piece = self._waiting.popleft()
        if self._waiting:  # others have a turn, and so has the end of a client that has not read
            await asyncio.sleep(0)
        if isinstance(piece, BaseException):
            raise piece
        self._left -= isinstance(piece.event, Result)
        return piece

    async def _arrive(self) -> bool:
        """Wait for a piece; return False after a silence."""
        if not self._waiting:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_S):
                    await self._arrived.wait()
        return bool(self._waiting)

    def _take(self, number: int, pace: Pace, event: Any) -> None:
        if isinstance(event, StreamDelta):
            for delta in _split_by_token(event):
                more = {"timings": pace.after(delta.tokens)} if self._body.timings_per_token else {}
                self._waiting.append(AnswerPiece(number, delta, more))
        elif isinstance(event, StreamProgress):
            if not event.total:
                return  # a prompt's progress counts from when it is accepted on
            progress: dict[str, Any] = {"prompt_progress": pace.read(event)}
            if self._body.timings_per_token:
                progress["timings"] = pace.after(())
            if self._body.return_progress:
                self._waiting.append(AnswerPiece(number, event, progress))
        elif isinstance(event, Result):
            self._waiting.append(AnswerPiece(number, event))
        elif isinstance(event, BaseException):
            self._waiting.append(event)
        if self._waiting:
            self._arrived.set()


def _split_by_token(delta: StreamDelta) -> Iterator[StreamDelta]:
    """Yield a delta; one with probabilities token by token: clients read those of the first one alone."""
    if len(delta.tokens) < 2 or delta.tokens[0].logprob is None:
        yield delta
        return
    at = 0
    for token in delta.tokens:
        yield replace(delta, text=delta.text[at : at + token.chars], tokens=(token,))
        at += token.chars


def uncut(result: Result) -> Result:
    """Return the result. Raises :class:`ShuttingDown` if it was cancelled: the client is still connected, so
    the daemon's end cancelled it."""
    if result.finish_reason == "cancelled":
        raise ShuttingDown("the daemon was stopped before the answer was complete")
    return result


def statistics(result: Result) -> dict[str, Any]:
    """Return the value of an answer's field ``localspec``: a result without its texts."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    return {name: value for name, value in fields.items() if name not in ("text", "thinking", "tool_calls")}


@dataclass
class AnswerBlock:
    number: int
    channel: Channel
    call: CallBegun | None = None
    text: str = ""

    @property
    def is_cut(self) -> bool:
        return self.call is not None and ToolCall("", "", self.text).object is None


class BlockStep(NamedTuple):
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
    found = [AnswerBlock(0, "thinking", None, result.thinking)] if thoughts and result.thinking else []
    if result.text or not (found or result.tool_calls):
        found.append(AnswerBlock(len(found), "answer", None, result.text))
    for i, call in enumerate(result.tool_calls):
        found.append(AnswerBlock(len(found), "call", CallBegun(i, call.id, call.name), call.arguments))
    return found


def prompt_s(result: Result) -> float:
    """Return the seconds from the end of queueing to the first token."""
    return max(0.0, (result.stats.ttft_s or 0.0) - result.stats.queued_s)


def answer_s(result: Result, tokens: int) -> float:
    """Return the seconds that ``tokens`` take at the measured speed; 0 if no speed was measured."""
    speed = result.stats.decode_tokens_per_s
    return tokens / speed if speed else 0.0


class Pace:
    """The timings of a running answer, by the clock of the HTTP server. The prompt's time begins when its
    reading does, or else when the answer is requested."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._prompt = (0, 0)
        self._read = self._answered = 0
        self._first: tuple[float, int] | None = None

    def read(self, progress: StreamProgress) -> dict[str, int]:
        """Return llama.cpp's ``prompt_progress``, in tokens and ms."""
        if self._prompt == (0, 0):
            self._began_s = time.perf_counter()
        self._prompt = (progress.total, progress.cached)
        self._read = progress.processed - progress.cached
        return {
            "total": progress.total,
            "cache": progress.cached,
            "processed": progress.processed,
            "time_ms": round(1000 * (time.perf_counter() - self._began_s)),
        }

    def after(self, tokens: tuple[Token, ...]) -> dict[str, float]:
        """Count ``tokens``; return the ``timings`` until now. The answer's time begins with its first tokens,
        so its rate is that of those after them."""
        now, (total, cached) = time.perf_counter(), self._prompt
        self._answered += len(tokens)
        if self._first is None and tokens:
            self._first, self._read = (now, self._answered), total - cached
        first_s, untimed = self._first or (now, 0)
        reading_s = first_s - self._began_s if self._first or self._read else 0.0
        return {
            "cache_n": cached,
            **_rates("prompt", self._read, 1000 * reading_s),
            **_rates("predicted", self._answered - untimed, 1000 * (now - first_s)),
            "predicted_n": self._answered,
        }


def timings(result: Result) -> dict[str, Any]:
    """Return llama.cpp's ``timings``; the answer's rate leaves out its first token, given by the prefill."""
    answered = result.completion_tokens
    fields = {
        "cache_n": result.cached_tokens,
        **_rates("prompt", result.prompt_tokens - result.cached_tokens, 1000 * prompt_s(result)),
        **_rates("predicted", answered - 1, 1000 * answer_s(result, answered - 1)),
        "predicted_n": answered,
    }
    if result.stats.drafted:
        fields |= {"draft_n": result.stats.drafted, "draft_n_accepted": result.stats.accepted}
    return fields


def _rates(name: str, n: int, ms: float) -> dict[str, float]:
    return {
        f"{name}_n": n,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / n if n > 0 else 0.0,
        f"{name}_per_second": 1000 * n / ms if ms else 0.0,
    }


def entries(text: str, tokens: Iterable[Token]) -> Iterator[dict[str, Any]]:
    at = 0
    for token in tokens:
        piece = text[at : at + token.chars]
        at += token.chars
        yield {
            "id": token.id,
            "token": piece,
            "logprob": token.logprob,
            "bytes": list(piece.encode()),
            "top_logprobs": [
                {
                    "id": likely.id,
                    "token": likely.piece.decode("utf-8", "replace"),
                    "logprob": likely.logprob,
                    "bytes": list(likely.piece),
                }
                for likely in token.top
            ],
        }


def columns(text: str, tokens: Iterable[Token], offset: int, top: int) -> dict[str, Any]:
    """Return the entries as columns for OpenAI's completions; ``offset``: the text's start in the answer."""
    each = list(entries(text, tokens))
    starts = accumulate((len(one["token"]) for one in each[:-1]), initial=offset)
    likely = [{one["token"]: one["logprob"] for one in entry["top_logprobs"]} for entry in each]
    return {
        "tokens": [one["token"] for one in each],
        "token_logprobs": [one["logprob"] for one in each],
        "top_logprobs": likely if top else None,
        "text_offset": list(starts) if each else [],
    }
