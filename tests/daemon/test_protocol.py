"""Violations of the wire's rules get an error, and other clients are not disturbed."""

from __future__ import annotations

import json

import psutil
import pytest

from localspec.protocol.jsonrpc import LONGEST_SENTENCE
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import INITIALIZE, REAL_DAEMON, Frame, Raw, code, raw
from tests.protocol.strings import TEXTS, string_fields

CALL = {"jsonrpc": "2.0", "id": 7, "method": "daemon/status", "params": {}}


async def test_a_connection_is_initialized_once(client: Raw) -> None:
    assert (await client.call(1, "initialize", **INITIALIZE))["error"]["code"] == -32600
    assert "result" in await client.call(2, "daemon/status")


async def test_a_cancel_is_no_request(client: Raw) -> None:
    await client.say(json.dumps({**CALL, "method": "$/cancelRequest", "params": {"id": 1}}))
    assert (await client.response(7))["error"]["code"] == -32600


async def test_notifications_get_no_answer(client: Raw) -> None:
    await client.notify("no/such")
    await client.notify("generate", prompt="hello")
    await client.notify("$/cancelRequest", id={"not": "an id"})
    await client.notify("$/cancelRequest", id="none")
    await client.call(1, "daemon/status")
    assert len(client.seen) == 1


@pytest.mark.parametrize(
    ("frame", "is_text", "close"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "method": "daemon/status"}', False, 1003),
        (b'{"jsonrpc": "\xff"}', True, 1007),
        (json.dumps({**CALL, "params": {"padding": "x" * 65536}}).encode(), True, 1009),
    ],
    ids=["binary", "no UTF-8", "too long"],
)
async def test_a_frame_of_no_text_closes_the_connection(
    client: Raw, other: Raw, frame: bytes, is_text: bool, close: int
) -> None:
    await client.socket.send(frame, text=is_text)
    assert await client.close_code() == close
    assert "result" in await other.call(1, "daemon/status")


async def test_an_id_that_is_running_is_refused_and_left_running(client: Raw) -> None:
    await client.begin("a", "generate", prompt="stall")
    await client.ask("a", "generate", prompt="hello")
    refused = await client.response(None)
    assert refused["error"]["code"] == -32600
    await client.cancel("a")
    assert (await client.result("a", "generate", prompt="hello"))["text"] == "hello "


@pytest.mark.slow
async def test_a_connection_has_a_limit_of_requests(start: StartDaemon) -> None:
    async with raw(start(max_in_flight=3)) as client:
        for id in range(4):
            await client.ask(id, "generate", prompt="stall")
        assert code(await client.response(3)) == "queue_full"
        for id in range(3):
            await client.cancel(id)
        assert "result" in await client.call(5, "generate", prompt="hello")


@pytest.mark.slow
async def test_all_connections_together_have_a_limit(start: StartDaemon) -> None:
    daemon = start(max_queued=2)
    async with raw(daemon) as one, raw(daemon) as other:
        await one.ask(1, "generate", prompt="stall")
        await one.begin(2, "generate", prompt="stall")
        assert code(await other.call(1, "generate", prompt="hello")) == "queue_full"
        assert (await other.result(2, "daemon/status"))["running"] == 2


async def test_connections_have_a_limit(start: StartDaemon) -> None:
    daemon = start(max_connections=1)
    async with raw(daemon):
        with pytest.raises(Exception, match="503"):
            async with raw(daemon):
                pass
    async with raw(daemon) as client:
        assert "result" in await client.call(1, "daemon/status")


async def test_a_flood_of_faults_is_answered_or_closed(client: Raw, other: Raw) -> None:
    for _ in range(2000):
        await client.say("{")
    assert "result" in await other.call(1, "daemon/status")
    assert "result" in await client.call(1, "daemon/status")
    assert len(client.seen) == 2001


HUGE = 3_900_000
MIB = 1024 * 1024
LONGEST_ANSWER = 3 * LONGEST_SENTENCE
"""characters: a message, again in the data, and a remedy"""
MORE_BYTES = 60 * MIB
"""beyond what it had after the first request: of one frame several copies are held while it is read"""
LOOSE = [
    '{"jsonrpc": "2.0", "id": 1, "method": "%s"}',
    '{"jsonrpc": "2.0", "id": "%s", "method": "metrics"}',
    '{"jsonrpc": "%s", "id": 1, "method": "metrics"}',
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"%s": 1}}',
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"prompt": "x", "options": {"%s": 1}}}',
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"prompt": "x", "options": {"k": "%s"}}}',
    '{"jsonrpc": "2.0", "id": 1%s, "method": "metrics"}',
    "%s",
]


def calls(value: str) -> list[str]:
    """A call for each field, with ``value`` there."""
    fields = [(field, field.path.rpartition(".")[2]) for field in string_fields()]
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": field.method, "params": field.around(value)}
        for field, name in fields
        if name not in TEXTS and field.method != "$/cancelRequest"
    ]
    return list(map(json.dumps, messages))


async def refused(client: Raw, text: str) -> int:
    """The length of the answer, which must be an error."""
    await client.say(text)
    answer: Frame = await client.next()
    while "method" in answer:
        answer = await client.next()
    client.unclaimed.clear()
    client.seen.clear()
    assert "error" in answer, answer
    return len(json.dumps(answer, ensure_ascii=False))


@pytest.mark.slow
async def test_a_string_of_megabytes_costs_no_log_no_answer_and_no_memory(start: StartDaemon) -> None:
    daemon = start(command=(*REAL_DAEMON, "--log"))
    process = psutil.Process(daemon.process.pid)
    attempts = [*calls("x" * HUGE), *(text % ("x" * HUGE) for text in LOOSE)]

    async with raw(daemon) as client:
        await refused(client, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * HUGE}))
        before = process.memory_info().rss
        longest = max([await refused(client, text) for text in attempts])
        grown = process.memory_info().rss - before
    log = (daemon.home / "state" / "daemon.log").stat().st_size
    print(f"longest answer {longest} characters, log {log} bytes, {grown / MIB:.0f} MiB more")
    assert longest <= LONGEST_ANSWER
    assert log < 100_000
    assert grown < MORE_BYTES
