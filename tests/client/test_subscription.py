"""Events as a program reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.client import Client
from localspec.client.wire import UNREAD, Subscription
from localspec.protocol.messages import MemoryStats
from localspec.protocol.requests import File, SessionEvent
from tests.client.conftest import echo
from tests.waiting import soon


async def test_a_new_subscription_takes_the_place_of_the_old_one(home: Path, client: Client) -> None:
    old = await client.subscribe()
    new = await client.subscribe()
    opened = await client.open().result()
    assert [event async for event in old] == []
    assert await soon(anext(aiter(new))) == SessionEvent(opened.session, "opened")


async def test_it_ends_with_the_connection_however_often_it_is_asked(home: Path) -> None:
    async with await echo() as client, await echo() as other:
        events = await client.subscribe()
        await other.shutdown()
        for _ in range(2):
            assert [event async for event in events] == []


async def test_a_slow_reader_loses_the_oldest() -> None:
    events = Subscription()
    sent = [SessionEvent(str(number), "changed") for number in range(UNREAD + 10)]
    for event in sent:
        events.feed(event)
    events.feed(None)
    assert [event async for event in events] == sent[11:]


@pytest.mark.slow
async def test_the_memory_is_taught_shown_and_forgotten(home: Path, client: Client) -> None:
    texts = (File("/p/a.py", "def add(a, b):\n    return a + b\n" * 3),)
    primed = await client.prime(texts=texts, workspace="/p").result()
    assert (primed.files, primed.skipped) == (1, 0)
    (table,) = (await client.request("memory/stats", MemoryStats)).tables
    assert table.workspace == "/p" and set(table.sources) == {"file:/p/a.py"}
    forgotten = await client.forget(workspace="/p")
    assert (forgotten.forgotten, forgotten.unit) == (1, "tables")
    assert (await client.request("memory/stats", MemoryStats)).tables == ()
