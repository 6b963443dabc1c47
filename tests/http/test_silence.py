"""Streams whose first text is a long time in coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import ollama
import pytest

from localspec.client import Client, Stream
from localspec.daemon.relay import Subscriber
from localspec.errors import ContextExceeded, EngineError
from localspec.http import answers, openai
from localspec.http.answers import Pieces
from localspec.http.app import EndpointApp
from localspec.http.ollama import OllamaChatBody, _chunks, of_chat
from localspec.http.server import InProcessExchange
from localspec.protocol.messages import StreamDelta
from localspec.protocol.requests import Result, Stats
from tests.toys import result_of
from tests.waiting import run


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SILENCE_S", 0.001)


async def test_a_defect_in_a_stream_ends_it_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def values() -> AsyncGenerator[str]:
        yield "a"
        raise ValueError("a defect")

    address = EndpointApp(openai.DIALECT, openai.DIALECT.endpoints[-1], {}, Client)  # type: ignore[arg-type]
    frames = [frame async for frame in address._frame_values(values(), AsyncExitStack())]
    assert frames[0] == b'data: "a"\n\n' and b"POST /v1/completions failed unexpectedly" in frames[1]
    assert len(frames) == 2 and "ValueError: a defect" in caplog.text


def test_a_stream_begins_before_its_first_piece_and_shows_that_it_lives() -> None:
    async def scene() -> list[tuple[int, str] | None]:
        whole = result_of(Stats(), text="whole")
        streams = [Stream[Result](number, lambda: None) for number in (1, 2)]
        streams[0].feed(StreamDelta(request=1, seq=0, text="a", tokens=()))
        pieces = await Pieces(streams).begin()
        found = [await anext(pieces), await anext(pieces), await anext(pieces)]
        streams[1].feed(StreamDelta(request=2, seq=0, text="b", tokens=()))
        for stream in streams:
            stream.finish(whole)
        found += [piece async for piece in pieces]
        return [
            None if piece is None else (piece.number, getattr(piece.event, "text", "")) for piece in found
        ]

    assert run(scene()) == [(0, "a"), None, None, (1, "b"), (0, "whole"), (1, "whole")]


def test_others_have_a_turn_between_pieces_that_wait() -> None:
    async def scene() -> list[str]:
        stream, seen = Stream[Result](1, lambda: None), list[str]()
        for seq, text in enumerate("abc"):
            stream.feed(StreamDelta(request=1, seq=seq, text=text, tokens=()))

        async def read() -> None:
            async for piece in Pieces([stream]):
                assert piece is not None and isinstance(piece.event, StreamDelta)
                seen.append(piece.event.text)

        reading = asyncio.create_task(read())
        while not seen:
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        return seen

    assert run(scene()) == ["a"]


def test_a_silent_chat_of_ollama_has_empty_pieces_that_its_client_reads() -> None:
    async def scene() -> ollama.ChatResponse:
        stream = Stream[Result](1, lambda: None)
        pieces = await Pieces([stream]).begin()
        async with aclosing(_chunks(OllamaChatBody(model="toy"), pieces, of_chat, 0.0)) as chunks:
            return ollama.ChatResponse.model_validate(await anext(chunks))

    piece = run(scene())
    assert piece.message.content == "" and not piece.done


def test_an_early_error_is_raised_before_the_stream_begins() -> None:
    async def scene() -> None:
        stream = Stream[Result](1, lambda: None)
        stream.finish(ContextExceeded("the prompt is too long"))
        await Pieces([stream]).begin()

    with pytest.raises(ContextExceeded):
        run(scene())


async def test_an_invalid_event_ends_its_request_alone() -> None:
    exchange = InProcessExchange(1, Subscriber())
    exchange.delta(0, b'{"text":7,"tokens":[]}')
    with pytest.raises(EngineError, match=r"is invalid: .*text"):
        await exchange.stream.result()
    assert exchange.cancelled
