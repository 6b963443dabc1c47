"""Messages in memory, as over a socket."""

from __future__ import annotations

import asyncio

import pytest
from websockets.exceptions import ConnectionClosed

from localspec.http.server import End
from tests.waiting import soon


async def test_what_was_sent_comes_in_order_then_the_reason_of_the_end() -> None:
    end = End()
    for text in ("a", "b"):
        await end.send(text)
    await end.close(1001, "over")
    await end.close(1000, "later")
    assert [await end.peer.recv(), await end.peer.recv()] == ["a", "b"]
    for each in (end, end.peer):
        with pytest.raises(ConnectionClosed) as raised:
            await each.recv()
        assert raised.value.rcvd is not None and raised.value.rcvd.reason == "over"
        with pytest.raises(ConnectionClosed):
            await each.send("c")


async def test_the_end_wakes_a_receiver() -> None:
    end = End()
    waiting = asyncio.create_task(end.recv())
    await asyncio.sleep(0)
    await end.peer.close()
    with pytest.raises(ConnectionClosed):
        await soon(waiting)
