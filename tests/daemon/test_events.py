"""Events of chats: the clients that get them, and those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.daemon.harness import Frame, Raw


def events(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    return [frame["params"] for frame in frames if frame.get("method") == "event"]


async def subscribe(client: Raw) -> None:
    assert await client.result("subscribe", "events/subscribe") == {}


async def test_events_of_chats_hold_no_text_and_private_chats_have_none(client: Raw, other: Raw) -> None:
    await subscribe(other)
    opened = []
    for private in (True, False):
        session = (await client.result(1, "session/open", private=private))["session"]
        await client.call(2, "chat/send", session=session, content="confidential")
        opened.append(session)
    await other.result("status", "daemon/status")
    told = events(other.seen)
    assert [event.pop("change") for event in told] == ["opened", "changed", "changed"]
    assert told == 3 * [{"kind": "session", "session": opened[1]}]
    assert events(client.seen) == []
