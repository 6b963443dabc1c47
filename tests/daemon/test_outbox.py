"""A client's outbox: messages are merged, keep their order, and are numbered when sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from localspec.daemon.relay.deltas import MERGED_BYTES, Deltas
from localspec.daemon.relay.outbox import Outbox
from localspec.daemon.relay.socket import WebSocket
from localspec.protocol.results import Token
from tests.waiting import soon, until


def tokens(text: str) -> tuple[Token, ...]:
    return (Token(1, "target", len(text)),)


class Pair:
    """An outbox on one side of a real connection, its reader on the other."""

    def __init__(self, server: ServerConnection, client: ClientConnection) -> None:
        self.server = server
        self.client = client
        self.slow = 0

    def outbox(self, limit: int = 1024, patience: float = 600) -> Outbox:
        def on_slow() -> None:
            self.slow += 1

        return Outbox(WebSocket(self.server), limit, patience, on_slow)

    async def read(self, count: int) -> list[Any]:
        return [json.loads(await soon(self.client.recv())) for _ in range(count)]


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    accepted: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def handle(socket: ServerConnection) -> None:
        accepted.put_nowait(socket)
        await socket.wait_closed()

    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", proxy=None, max_size=None) as client:
            yield Pair(await accepted.get(), client)


@pytest.fixture
def both() -> AbstractAsyncContextManager[Pair]:
    return pair()


def shown(frames: list[Any]) -> list[tuple[int, int, str] | str]:
    """(request, seq, text) of deltas, the whole frame of what else was put in."""
    return [
        frame
        if isinstance(frame, str)
        else (frame["params"]["request"], frame["params"]["seq"], frame["params"]["text"])
        for frame in frames
    ]


async def test_waiting_deltas_merge_by_request_and_keep_their_place(both: Pair) -> None:
    outbox, one, two = both.outbox(), Deltas(1), Deltas(2)
    for text in "abc":
        outbox.delta(one, text, tokens(text))
        outbox.delta(two, text.upper(), tokens(text))
    outbox.put('"notice"', after=one)
    outbox.delta(one, "d", tokens("d"))
    outbox.delta(two, "D", tokens("D"))
    outbox.put('"end of two"', after=two)
    outbox.close()
    await soon(outbox.run())
    frames = await both.read(5)
    assert shown(frames) == [(1, 0, "abc"), (2, 0, "ABCD"), "notice", (1, 1, "d"), "end of two"]
    assert len(frames[1]["params"]["tokens"]) == 4


async def test_a_merged_delta_does_not_grow_for_ever(both: Pair) -> None:
    outbox, stream = both.outbox(limit=10 * MERGED_BYTES), Deltas(1)
    for _ in range(5):
        outbox.delta(stream, "x" * (MERGED_BYTES // 2), ())
    outbox.close()
    await soon(outbox.run())
    sizes = [len(frame["params"]["text"]) * 2 // MERGED_BYTES for frame in await both.read(3)]
    assert sizes == [2, 2, 1]


async def test_a_full_buffer_is_told_after_the_patience_and_a_drained_one_is_not(both: Pair) -> None:
    patient = both.outbox(limit=100, patience=0.05)
    patient.put("x" * 100)
    await until(lambda: both.slow == 1, "the client is found slow")
    drained = both.outbox(limit=100, patience=0.2)
    drained.put("x" * 100)
    sending = asyncio.create_task(drained.run())
    await both.client.recv()
    drained.put("y" * 99)
    await both.client.recv()
    later = both.outbox(limit=100, patience=0.3)
    later.put("x" * 100)
    await until(lambda: both.slow == 2, "the later one is found slow")
    drained.close()
    await soon(sending)
    assert both.slow == 2


async def test_far_too_much_is_told_at_once(both: Pair) -> None:
    outbox = both.outbox(limit=100)
    outbox.put("x" * 5000)
    assert both.slow == 0  # one answer may be as large as it is
    outbox.put("x")
    assert both.slow == 1


async def test_what_may_be_lost_fills_an_eighth_of_the_buffer_and_splits_no_delta(both: Pair) -> None:
    outbox, stream = both.outbox(limit=800), Deltas(1)
    outbox.delta(stream, "a", ())
    for _ in range(50):
        outbox.live('"' + "x" * 38 + '"')
        outbox.delta(stream, "b", ())
    outbox.close()
    await soon(outbox.run())
    await both.server.close()
    frames = [json.loads(frame) async for frame in both.client]
    # Two fit in 100 bytes beside the text, and a third that begins before they are full.
    assert frames[0]["params"]["text"] == "a" + "b" * 50 and len(frames) == 1 + 3
    assert both.slow == 0


async def test_a_closed_outbox_takes_nothing(both: Pair) -> None:
    outbox, stream = both.outbox(), Deltas(1)
    outbox.put('"first"')
    outbox.close()
    outbox.put('"second"')
    outbox.delta(stream, "third", ())
    await soon(outbox.run())
    assert await both.read(1) == ["first"]
    assert outbox.sent.is_set()
    dropped = both.outbox()
    dropped.put('"first"')
    dropped.close(now=True)
    await soon(dropped.run())
    await both.server.send('"nothing before this"')
    assert await both.read(1) == ["nothing before this"]


async def test_sending_ends_with_the_connection(both: Pair) -> None:
    outbox = both.outbox()
    await both.client.close()
    outbox.put('"too late"')
    await soon(outbox.run())
    assert outbox.sent.is_set()
