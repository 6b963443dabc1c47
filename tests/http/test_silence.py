"""Streams whose first text is a long time in coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing

import ollama
import pytest

from localspec.client import Client, Stream
from localspec.errors import ContextExceeded
from localspec.http import answers, endpoint, openai
from localspec.http.app import Address
from localspec.http.endpoint import begun, noting_silence
from localspec.http.ollama import ChatBody, _chunks, of_chat
from localspec.protocol.requests import Result
from tests.waiting import run


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SILENCE_S", 0.001)


async def test_a_defect_in_a_stream_ends_it_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def values() -> AsyncIterator[str]:
        yield "a"
        raise ValueError("a defect")

    address = Address(openai.DIALECT, openai.DIALECT.endpoints[-1], {}, Client)  # type: ignore[arg-type]
    frames = [frame async for frame in address._framed(values(), AsyncExitStack())]
    assert frames[0] == b'data: "a"\n\n' and b"POST /v1/completions failed unexpectedly" in frames[1]
    assert len(frames) == 2 and "ValueError: a defect" in caplog.text


def test_a_stream_begins_before_its_first_piece_and_shows_that_it_lives() -> None:
    async def scene() -> list[str | None]:
        written = asyncio.Event()

        async def pieces() -> AsyncIterator[str]:
            await written.wait()
            yield "a"
            yield "b"

        noted = noting_silence(await begun(pieces()))
        found = [await anext(noted), await anext(noted)]
        written.set()
        return found + [piece async for piece in noted if piece is not None]

    assert run(scene()) == [None, None, "a", "b"]


def test_a_silent_chat_of_ollama_has_empty_pieces_that_its_client_reads() -> None:
    async def scene() -> ollama.ChatResponse:
        stream = Stream[Result](1, lambda: None)
        pieces = await answers.pieces([stream])
        async with aclosing(_chunks(ChatBody(model="toy"), pieces, of_chat, 0.0)) as chunks:
            return ollama.ChatResponse.model_validate(await anext(chunks))

    piece = run(scene())
    assert piece.message.content == "" and not piece.done


def test_an_early_error_is_raised_before_the_stream_begins() -> None:
    async def pieces() -> AsyncIterator[str]:
        raise ContextExceeded("the prompt is too long")
        yield

    with pytest.raises(ContextExceeded):
        run(begun(pieces()))
