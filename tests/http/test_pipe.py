"""Messages in memory, as over a socket."""

from __future__ import annotations

import asyncio

import pytest
from websockets.exceptions import ConnectionClosed

from localspec.http.pipe import MOST, End
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


async def test_a_sender_waits_for_a_slow_reader() -> None:
    end = End()
    for number in range(MOST):
        assert end.is_ready
        end.write(str(number))
    assert not end.is_ready
    sending = asyncio.create_task(end.send("last"))
    await asyncio.sleep(0)
    assert not sending.done() and await end.peer.recv() == "0"
    await soon(sending)
    assert [await end.peer.recv() for _ in range(MOST)][-1] == "last"


@pytest.mark.parametrize("waits", [End.recv, lambda end: end.send("x")])
async def test_the_end_wakes_who_waits(waits: object) -> None:
    end = End()
    for _ in range(MOST):
        end.write("x")
    waiting = asyncio.create_task(waits(end))  # type: ignore[operator]
    await asyncio.sleep(0)
    end.peer.abort()
    with pytest.raises(ConnectionClosed):
        await soon(waiting)
