"""Streams whose first text is a long time in coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from localspec.errors import ContextExceeded
from localspec.http import endpoint
from localspec.http.endpoint import begun, noting_silence
from tests.waiting import run


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SILENCE_S", 0.001)


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


def test_an_early_error_is_raised_before_the_stream_begins() -> None:
    async def pieces() -> AsyncIterator[str]:
        raise ContextExceeded("the prompt is too long")
        yield

    with pytest.raises(ContextExceeded):
        run(begun(pieces()))
