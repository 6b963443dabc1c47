"""Live events: the clients that get them, and those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Frame, Raw, raw, texts


def events(frames: Sequence[Frame], kind: str) -> list[dict[str, Any]]:
    told = [frame["params"] for frame in frames if frame.get("method") == "event"]
    return [event for event in told if event["kind"] == kind]


async def subscribe(client: Raw, *kinds: str) -> None:
    assert await client.result("subscribe", "events/subscribe", kinds=kinds) == {}


async def generate(client: Raw, id: int, prompt: str, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = await client.result(id, "generate", prompt=prompt, options=options)
    return result


async def test_rounds_go_to_the_client_of_their_request_only(client: Raw, other: Raw) -> None:
    await subscribe(client, "round")
    await subscribe(other, "round")
    await generate(client, 1, "one two three")
    await generate(other, 7, "four")
    assert [(e["request"], e["round"]) for e in events(client.seen, "round")] == [(1, 1), (1, 2), (1, 3)]
    assert [(e["request"], e["chosen"]) for e in events(other.seen, "round")] == [(7, [1])]


async def test_without_a_subscription_and_after_its_end_there_are_none(client: Raw) -> None:
    await generate(client, 1, "one two")
    await subscribe(client, "model", "session")
    await generate(client, 2, "one two")
    await subscribe(client, "round")
    await generate(client, 3, "one two")
    await subscribe(client)
    await generate(client, 4, "one two")
    assert {event["request"] for event in events(client.seen, "round")} == {3}


async def test_rounds_of_a_running_request_end_with_the_subscription(client: Raw) -> None:
    await subscribe(client, "round")
    await client.ask(1, "generate", prompt="flood 100000000 1")
    await client.notice("event")
    await subscribe(client)
    client.seen.clear()
    await client.notice("stream/delta")
    await client.notify("$/cancelRequest", id=1)
    await client.response(1)
    assert events(client.seen, "round") == []


async def test_a_completion_comes_whole_and_its_rounds_are_sent(client: Raw) -> None:
    await subscribe(client, "round")
    await client.call(1, "completion/inline", prefix="a b", suffix="")
    assert len(events(client.seen, "round")) == 2 and texts(client.seen, 1) == ""


@pytest.mark.slow
async def test_models_that_come_go_and_crash_are_events_of_all_subscribers(start: StartDaemon) -> None:
    daemon = start()
    async with raw(daemon) as client, raw(daemon) as other, raw(daemon) as deaf:
        await subscribe(other, "model")
        for model in ("a", "b", "c", "d", "e"):
            await generate(client, 1, "hello", model=model)
        (last,) = [m for m in (await status(client))["models"] if m["model"] == "e"]
        psutil.Process(last["pid"]).kill()
        while not (told := events(other.seen, "model")) or told[-1]["change"] != "crashed":
            await other.next()
        changes = [(event["model"], event["change"]) for event in told]
        assert changes[:4] == [(model, "loaded") for model in "abcd"]
        # Four fit: the oldest has to go before the fifth comes.
        assert changes[4:] == [("a", "unloaded"), ("e", "loaded"), ("e", "crashed")]
        await status(deaf)
        assert events(deaf.seen, "model") == events(client.seen, "model") == []


async def status(client: Raw) -> dict[str, Any]:
    found: dict[str, Any] = await client.result("status", "daemon/status")
    return found


async def test_a_model_that_cannot_be_loaded_never_came(client: Raw) -> None:
    await subscribe(client, "model")
    await client.call(1, "generate", prompt="x", options={"model": "broken"})
    await client.call(2, "generate", prompt="x", options={"model": "dies"})
    assert events(client.seen, "model") == [{"kind": "model", "model": "dies", "change": "crashed"}]


async def test_events_of_chats_hold_no_text_and_private_chats_have_none(client: Raw, other: Raw) -> None:
    await subscribe(other, "session")
    opened = []
    for private in (True, False):
        session = (await client.result(1, "session/open", private=private))["session"]
        await client.call(2, "chat/send", session=session, content="confidential")
        opened.append(session)
    await status(other)
    told = events(other.seen, "session")
    assert [event.pop("change") for event in told] == ["opened", "changed", "changed"]
    assert told == 3 * [{"kind": "session", "session": opened[1]}]


@pytest.mark.slow
async def test_a_slow_client_loses_rounds_and_no_text(start: StartDaemon) -> None:
    daemon = start(send_buffer=256 * 1024)
    async with raw(daemon) as sleeper, raw(daemon) as reader:
        await subscribe(sleeper, "round")
        sleeper.socket.transport.pause_reading()
        await sleeper.ask(1, "generate", prompt="flood 8000 10")
        await reader.ask(1, "generate", prompt="one")  # the echo answers by turns
        while (await status(reader))["running"]:
            pass
        sleeper.socket.transport.resume_reading()
        await sleeper.response(1)
        assert texts(sleeper.seen, 1) == "x" * 80_000
        assert 0 < len(events(sleeper.seen, "round")) < 8000
