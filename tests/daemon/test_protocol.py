"""Violations of the wire's rules get an error, and other clients are not disturbed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import INITIALIZE, DaemonProcess, code, raw
from tests.waiting import run


def test_initialize_comes_first_and_once(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon, initialize=False) as client:
            assert code(await client.call(1, "daemon/status")) == "not_initialized"
            welcome = (await client.call(2, "initialize", **INITIALIZE))["result"]
            assert welcome["protocol"] == 1
            assert welcome["server"]["name"] == "localspec"
            assert welcome["limits"] == {"max_frame": 65536, "max_in_flight": 32}
            again = await client.call(3, "initialize", **INITIALIZE)
            assert again["error"]["code"] == -32600
            assert (await client.call(4, "daemon/status"))["result"]["pid"] == daemon.process.pid

    run(test())


def test_another_protocol_is_refused_naming_both(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon, initialize=False) as client:
            params = {**INITIALIZE, "protocol": 2, "from": "the future"}
            refused = await client.call(1, "initialize", **params)
            assert code(refused) == "version_skew"
            assert "protocol 2" in refused["error"]["message"]
            assert "speaks protocol 1" in refused["error"]["message"]
            assert code(await client.call(2, "daemon/status")) == "not_initialized"

    run(test())


CALL = {"jsonrpc": "2.0", "id": 7, "method": "daemon/status", "params": {}}


@pytest.mark.parametrize(
    ("text", "fault", "id"),
    [
        ("{", -32700, None),
        ("", -32700, None),
        ('{"jsonrpc": "2.0", "id": 7, "method": "daemon/status", "params": {}', -32700, None),
        ("[" * 30_000, -32600, None),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, -32600, None),
        (
            '{"jsonrpc":"2.0","id":7,"method":"generate","params":' + "[" * 20_000 + "]" * 20_000 + "}",
            -32700,
            None,
        ),
        (json.dumps([CALL, CALL]), -32600, None),
        ("[]", -32600, None),
        ("null", -32600, None),
        ('"text"', -32600, None),
        (json.dumps({**CALL, "jsonrpc": "1.0"}), -32600, 7),
        (json.dumps({**CALL, "id": 1.5}), -32600, None),
        (json.dumps({**CALL, "id": True}), -32600, None),
        (json.dumps({**CALL, "id": None}), -32600, None),
        (json.dumps({**CALL, "id": "x" * 200}), -32600, None),
        (json.dumps({**CALL, "extra": 1}), -32600, 7),
        (json.dumps({**CALL, "method": 3}), -32600, 7),
        ('{"jsonrpc": "2.0", "id": 7}', -32600, 7),
        (json.dumps({**CALL, "method": "daemon/statu"}), -32601, 7),
        (json.dumps({**CALL, "params": []}), -32602, 7),
        (json.dumps({**CALL, "params": {"verbose": True}}), -32602, 7),
        (json.dumps({**CALL, "method": "session/get", "params": {}}), -32602, 7),
        (json.dumps({**CALL, "method": "$/cancelRequest", "params": {"id": 1}}), -32600, 7),
        ('{"jsonrpc":"2.0","id":' + "9" * 5000 + ',"method":"daemon/status"}', -32600, None),
    ],
)
def test_faults_are_named_and_survived(daemon: DaemonProcess, text: str, fault: int, id: int | None) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            await client.say(text)
            answer = await client.next()
            assert answer["id"] == id
            assert answer["error"]["code"] == fault, answer
            assert len(json.dumps(answer)) < 1000
            assert "result" in await client.call(8, "daemon/status")

    run(test())


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"prompt": 3}, "prompt"),
        ({"prompt": "x", "option": {}}, "option"),
        ({"prompt": "x", "options": {"temprature": 1}}, "temprature"),
        ({"prompt": "x", "options": {"k": 21}}, "k"),
        ({"prompt": "x", "options": {"temperature": 1e308}}, "temperature"),
        ({"prompt": "x", "options": {"max_tokens": 10**30}}, "max_tokens"),
        ({"prompt": "x", "options": {"threshold": 0.5}}, "threshold"),
        ({"prompt": "x", "options": {"proposer": "magic"}}, "proposer"),
        ({"prompt": "x", "messages": []}, "exactly one of prompt, tokens and messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "role"),
        ({}, "exactly one of prompt, tokens and messages"),
    ],
)
def test_wrong_parameters_are_named(daemon: DaemonProcess, params: dict[str, Any], names: str) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            answer = await client.call(1, "generate", **params)
            assert answer["error"]["code"] == -32602
            assert names in answer["error"]["message"]

    run(test())


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00 alone"', '"\\ud800\\u0041"'])
def test_half_a_surrogate_pair_is_no_text(daemon: DaemonProcess, text: str) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            await client.say('{"jsonrpc":"2.0","id":1,"method":"generate","params":{"prompt":' + text + "}}")
            assert (await client.next())["error"]["code"] in (-32700, -32602)

    run(test())


def test_notifications_get_no_answer(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            await client.notify("no/such")
            await client.notify("generate", prompt="hello")
            await client.notify("$/cancelRequest", id={"not": "an id"})
            await client.notify("$/cancelRequest", id="nobody")
            await client.call(1, "daemon/status")
            assert len(client.seen) == 1

    run(test())


def test_binary_frames_close_the_connection(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client, raw(daemon) as bystander:
            await client.say(b'{"jsonrpc": "2.0", "id": 1, "method": "daemon/status"}')
            assert await client.close_code() == 1003
            assert "result" in await bystander.call(1, "daemon/status")

    run(test())


def test_oversized_frames_close_the_connection(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client, raw(daemon) as bystander:
            await client.say(json.dumps({**CALL, "params": {"padding": "x" * 65536}}))
            assert await client.close_code() == 1009
            assert "result" in await bystander.call(1, "daemon/status")

    run(test())


def test_invalid_utf8_closes_the_connection(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client, raw(daemon) as bystander:
            await client.socket.send(b'{"jsonrpc": "\xff"}', text=True)
            assert await client.close_code() == 1007
            assert "result" in await bystander.call(1, "daemon/status")

    run(test())


def test_an_id_that_is_running_is_refused_and_left_running(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            await client.ask("a", "generate", prompt="stall")
            await client.notice("stream/delta")
            await client.ask("a", "generate", prompt="hello")
            refused = await client.response(None)
            assert refused["error"]["code"] == -32600
            await client.notify("$/cancelRequest", id="a")
            assert (await client.response("a"))["result"]["finish_reason"] == "cancelled"
            assert (await client.call("a", "generate", prompt="hello"))["result"]["text"] == "hello "

    run(test())


@pytest.mark.slow
def test_a_connection_has_a_limit_of_requests(start: StartDaemon) -> None:
    async def test() -> None:
        async with raw(start(max_in_flight=3)) as client:
            for id in range(4):
                await client.ask(id, "generate", prompt="stall")
            assert code(await client.response(3)) == "queue_full"
            for id in range(3):
                await client.notify("$/cancelRequest", id=id)
                assert (await client.response(id))["result"]["finish_reason"] == "cancelled"
            assert "result" in await client.call(5, "generate", prompt="hello")

    run(test())


@pytest.mark.slow
def test_all_connections_together_have_a_limit(start: StartDaemon) -> None:
    async def test() -> None:
        daemon = start(max_queued=2)
        async with raw(daemon) as one, raw(daemon) as other:
            await one.ask(1, "generate", prompt="stall")
            await one.ask(2, "generate", prompt="stall")
            await one.notice("stream/delta")
            assert code(await other.call(1, "generate", prompt="hello")) == "queue_full"
            assert (await other.call(2, "daemon/status"))["result"]["running"] == 2

    run(test())


def test_connections_have_a_limit(start: StartDaemon) -> None:
    async def test() -> None:
        daemon = start(max_connections=1)
        async with raw(daemon):
            with pytest.raises(Exception, match="503"):
                async with raw(daemon):
                    pass
        async with raw(daemon) as client:
            assert "result" in await client.call(1, "daemon/status")

    run(test())


def test_a_flood_of_faults_is_answered_or_closed(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client, raw(daemon) as bystander:
            for _ in range(2000):
                await client.say("{")
            assert "result" in await bystander.call(1, "daemon/status")
            assert "result" in await client.call(1, "daemon/status")
            assert len(client.seen) == 2001

    run(test())
