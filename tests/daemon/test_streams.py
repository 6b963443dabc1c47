"""Streams that outlive their connection: lost, picked up, taken over, too late."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import DaemonProcess, Frame, Raw, code, raw, texts
from tests.daemon.test_history import content, open_session, stored
from tests.waiting import until


class Lines:
    """The echo model's answer, which a test writes line by line."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # For reading, too: the end that opens it first must not wait for the other.
        self._fd = os.open(path, os.O_RDWR)

    def write(self, *lines: str) -> None:
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())

    def end(self) -> None:
        os.close(self._fd)


@pytest.fixture
def lines(home: Path) -> Iterator[Lines]:
    yield Lines(home / "lines")


async def begin(client: Raw, session: str, content: str) -> str:
    """Send ``content`` as request 1; return the stream once its first text has come."""
    await client.ask(1, "chat/send", session=session, content=content)
    started = await client.notice("stream/started")
    assert started["params"]["request"] == 1
    await client.notice("stream/delta")
    return str(started["params"]["stream"])


async def alone(watcher: Raw) -> dict[str, Any]:
    """The daemon's status once ``watcher`` is the only client it has."""
    while True:
        status: dict[str, Any] = await watcher.result("alone", "daemon/status")
        if status["connections"] == 1:
            return status


async def idle(watcher: Raw) -> None:
    while (await watcher.result("idle", "daemon/status"))["running"]:
        pass


def deltas(frames: list[Frame], id: int) -> list[tuple[int, str]]:
    sent = [f["params"] for f in frames if f.get("method") == "stream/delta"]
    return [(delta["seq"], delta["text"]) for delta in sent if delta["request"] == id]


@pytest.mark.slow
async def test_a_lost_chat_goes_on_and_is_picked_up_by_another_connection(
    own: DaemonProcess, lines: Lines
) -> None:
    lines.write("one")
    async with raw(own) as watcher:
        async with raw(own) as client:
            session = await open_session(client)
            stream = await begin(client, session, f"lines {lines.path}")
            client.socket.transport.abort()
        assert (await alone(watcher))["running"] == 1
        lines.write("two", "three")
        await until(lambda: stored(own)[1][1] == "onetwothree", "it goes on without a client")
        await watcher.begin(7, "stream/resume", stream=stream, after_seq=0)
        lines.write("four")
        while deltas(watcher.seen, 7)[-1] != (3, "four"):
            await watcher.next()
        assert deltas(watcher.seen, 7) == [(1, "two"), (2, "three"), (3, "four")]
        lines.end()
        assert (await watcher.response(7))["result"]["text"] == "onetwothreefour"
        assert await content(watcher, session) == [
            ("user", f"lines {lines.path}"),
            ("assistant", "onetwothreefour"),
        ]


async def test_a_stream_can_be_resumed_after_every_number(client: Raw, other: Raw, lines: Lines) -> None:
    """While it runs and after its end, to the same text; not after a number that is not there yet."""
    session = await open_session(client)
    lines.write("one", "two", "three", "four")
    stream = await begin(client, session, f"lines {lines.path}")
    while deltas(client.seen, 1)[-1] != (3, "four"):
        await client.next()
    said = list(enumerate(["one", "two", "three", "four"]))
    for after in range(-1, 4):
        if after == 3:
            lines.end()  # this one gets the result alone
        id = after + 10
        await other.ask(id, "stream/resume", stream=stream, after_seq=after)
        while deltas(other.seen, id) != said[after + 1 :]:
            await other.next()
    assert (await other.response(13))["result"]["text"] == "onetwothreefour"
    for after in range(-1, 4):
        id = after + 20
        ended = await other.result(id, "stream/resume", stream=stream, after_seq=after)
        assert deltas(other.seen, id) == said[after + 1 :] and ended["text"] == "onetwothreefour"
    assert code(await other.call(1, "stream/resume", stream=stream, after_seq=4)) == "invalid_options"


async def test_a_takeover_ends_the_other_request_and_alone_can_cancel(client: Raw, other: Raw) -> None:
    session = await open_session(client)
    stream = await begin(client, session, "stall")
    await other.ask(5, "stream/resume", stream=stream)
    assert code(await client.response(1)) == "gone"
    assert deltas([await other.notice("stream/delta")], 5) == [(0, "stalling")]
    await client.notify("$/cancelRequest", id=1)
    assert (await client.result(2, "daemon/status"))["running"] == 1
    # It may come back, and the other one's loss is then no matter.
    await client.ask(3, "stream/resume", stream=stream, after_seq=0)
    assert code(await other.response(5)) == "gone"
    other.socket.transport.abort()
    await client.cancel(3)
    assert deltas(client.seen, 3) == []


@pytest.mark.slow
async def test_after_the_grace_a_lost_chat_is_cancelled_and_gone(start: StartDaemon) -> None:
    daemon = start(grace_s=0.05)
    async with raw(daemon) as watcher:
        async with raw(daemon) as client:
            stream = await begin(client, await open_session(client), "stall")
            client.socket.transport.abort()
        await idle(watcher)
        assert stored(daemon)[1] == ("assistant", "stalling", "cancelled")
        assert code(await watcher.call(1, "stream/resume", stream=stream)) == "gone"


@pytest.mark.slow
async def test_without_grace_nothing_is_kept(start: StartDaemon) -> None:
    async with raw(start(grace_s=0)) as client:
        await client.call(1, "generate", prompt="hello")
        stream = client.seen[0]["params"]["stream"]
        assert code(await client.call(2, "stream/resume", stream=stream)) == "gone"


@pytest.mark.slow
async def test_a_one_shot_of_a_lost_client_is_cancelled_at_once(start: StartDaemon) -> None:
    daemon = start(grace_s=600)
    async with raw(daemon) as watcher:
        async with raw(daemon) as client:
            await client.ask(1, "generate", prompt="stall")
            stream = (await client.notice("stream/started"))["params"]["stream"]
            await client.notice("stream/delta")
            client.socket.transport.abort()
        await idle(watcher)
        ended = await watcher.result(1, "stream/resume", stream=stream)
        assert (ended["finish_reason"], ended["text"]) == ("cancelled", "stalling")
        assert texts(watcher.seen, 1) == "stalling"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "error"), [("fail", "out_of_memory"), ("kill", "engine_crashed"), ("one two", None)]
)
async def test_a_missed_end_can_be_had_later(daemon: DaemonProcess, prompt: str, error: str | None) -> None:
    async with raw(daemon) as watcher:
        async with raw(daemon) as client:
            session = await open_session(client)
            await client.ask(1, "chat/send", session=session, content=prompt)
            stream = (await client.notice("stream/started"))["params"]["stream"]
            client.socket.transport.abort()
        await idle(watcher)
        for id in (1, 2):  # as often as it is asked for
            ended = await watcher.call(id, "stream/resume", stream=stream)
            if error is None:
                assert texts(watcher.seen, id) == ended["result"]["text"] == "one two "
            else:
                assert code(ended) == error


@pytest.mark.slow
async def test_what_is_no_longer_kept_is_gone_and_the_stream_is_not(start: StartDaemon) -> None:
    async with raw(start(send_buffer=64 * 1024 * 1024)) as client:
        session = await open_session(client)
        await client.ask(1, "chat/send", session=session, content="flood 600 5000")
        await client.response(1)
        last = deltas(client.seen, 1)[-1][0]
        stream = next(f for f in client.seen if f.get("method") == "stream/started")["params"]["stream"]
        assert code(await client.call(2, "stream/resume", stream=stream)) == "gone"
        ended = await client.call(3, "stream/resume", stream=stream, after_seq=last)
        assert len(ended["result"]["text"]) == 3_000_000 and deltas(client.seen, 3) == []


async def test_the_streams_that_ended_last_are_kept(client: Raw) -> None:
    for _ in range(66):
        await client.call(1, "generate", prompt="a")
    names = [f["params"]["stream"] for f in client.seen if f.get("method") == "stream/started"]
    assert code(await client.call(2, "stream/resume", stream=names[0])) == "gone"
    assert "result" in await client.call(3, "stream/resume", stream=names[2])


@pytest.mark.slow
async def test_a_daemon_that_stops_ends_the_streams_of_lost_clients(own: DaemonProcess) -> None:
    async with raw(own) as watcher:
        async with raw(own) as client:
            await begin(client, await open_session(client), "stall")
            client.socket.transport.abort()
        await alone(watcher)
    assert own.stop() == 0
    assert stored(own)[1] == ("assistant", "stalling", "cancelled")
    assert "Traceback" not in own.log()


async def test_a_session_names_the_stream_without_a_follower(daemon: DaemonProcess, client: Raw) -> None:
    session = await open_session(client)

    async def unfollowed() -> object:
        content = await client.call("get", "session/get", session=session)
        question, answer = content["result"]["messages"]
        assert "stream" not in question
        return answer.get("stream")

    async with raw(daemon) as lost:
        stream = await begin(lost, session, "stall")
        assert await unfollowed() is None
        lost.socket.transport.abort()
    await alone(client)
    assert await unfollowed() == stream
    await client.begin(2, "stream/resume", stream=stream)
    assert await unfollowed() is None
    await client.cancel(2)
    assert await unfollowed() is None


@pytest.mark.slow
async def test_a_reader_that_loses_its_connection_repeatedly_misses_nothing(daemon: DaemonProcess) -> None:
    chance, end = random.Random(1), None
    async with raw(daemon) as client:
        stream = await begin(client, await open_session(client), "flood 5000 7")
        read = deltas(client.seen, 1)
        client.socket.transport.abort()
    while end is None:
        async with raw(daemon) as client:
            await client.ask(2, "stream/resume", stream=stream, after_seq=read[-1][0])
            for _ in range(chance.randrange(1, 900)):
                frame = await client.next()
                read += deltas([frame], 2)
                if frame.get("id") == 2:
                    end = frame["result"]["text"]
                    break
            client.socket.transport.abort()
    assert [seq for seq, _ in read] == list(range(len(read)))
    assert "".join(text for _, text in read) == end == "x" * 35_000


async def test_a_refused_resume_takes_nothing_from_the_follower(client: Raw, other: Raw) -> None:
    stream = await begin(client, await open_session(client), "stall")
    assert code(await other.call(1, "stream/resume", stream=stream, after_seq=5)) == "invalid_options"
    await client.notify("$/cancelRequest", id=1)
    assert (await client.response(1))["result"]["text"] == "stalling" == texts(client.seen, 1)
