"""Frames that break WebSocket's rules, damaged messages and a storm of requests: each is answered once."""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
from contextlib import suppress

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.daemon.conftest import StartDaemon
from tests.daemon.handshake import masked, request
from tests.daemon.harness import DaemonProcess, Frame, Raw, raw, texts
from tests.mutation import JSON_PIECES, Mutator
from tests.protocol.fuzzing import example_messages
from tests.slow.share import share
from tests.waiting import DEADLINE_S, soon

pytestmark = pytest.mark.slow

MESSAGES = share(6000)


def closed_with(daemon: DaemonProcess, said: bytes) -> bytes:
    """All that the daemon sends to a client which says this and no more, until it closes the connection."""
    received = b""
    with socket.socket(socket.AF_UNIX) as wire, suppress(ConnectionResetError):
        wire.settimeout(DEADLINE_S)
        wire.connect(daemon.socket)
        wire.sendall(request({}))
        wire.recv(65536)
        wire.sendall(said)
        while part := wire.recv(65536):
            received += part
    return received


@pytest.mark.parametrize(
    "said", [b"", masked(1, bytes(60_000))[:-1], b"\x01" + masked(1, b"{")[1:]], ids=["none", "part", "open"]
)
def test_a_client_that_answers_no_ping_is_closed(start: StartDaemon, said: bytes) -> None:
    closed_with(start(ping_interval_s=0.2), said)


async def test_damaged_messages_are_answered_or_end_their_connection(start: StartDaemon) -> None:
    """Another seed each time; LOCALSPEC_FUZZ_SEED repeats one that was printed."""
    seed = int(os.environ.get("LOCALSPEC_FUZZ_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}")
    daemon, mutator = start(max_queued=10_000), Mutator(example_messages(), JSON_PIECES, seed)

    async def one() -> None:
        # The client library trips over itself when it is cut off while it sends: AttributeError.
        with suppress(ConnectionClosed, AttributeError):
            async with raw(daemon) as client:
                for data in (next(mutator) for _ in range(8)):
                    await client.socket.send(data.replace(b"daemon/shutdown", b"shutdown"), text=True)
                await client.ask("last", "daemon/status")
                while b'"last"' not in (await soon(client.socket.recv(decode=False))):
                    pass

    for _ in range(MESSAGES // 64):
        await asyncio.gather(*(one() for _ in range(8)))
    failures = re.findall(r".* ERROR localspec\.daemon\.connection.*", daemon.log())
    assert daemon.process.poll() is None and failures == []


PROMPTS = ["stall", "one two three", "flood 50 100", "fail", "degrade", "kill", "exit 9"]
MODELS = ["a", "b", "c"]
CLIENTS = 8
REQUESTS = 40
ENDINGS = {"stop", "cancelled", "out_of_memory", "engine_crashed", "queue_full"}


def ending(frame: Frame) -> str:
    return str(frame["result"]["finish_reason"] if "result" in frame else frame["error"]["data"]["code"])


async def client_of_the_storm(daemon: DaemonProcess, seed: int) -> None:
    chance = random.Random(seed)
    async with raw(daemon) as client:
        for id in range(REQUESTS):
            prompt, model = chance.choice(PROMPTS), chance.choice(MODELS)
            await client.ask(id, "generate", prompt=prompt, options={"model": model})
            for victim in chance.sample(range(id + 1), min(3, id + 1)):
                await client.notify("$/cancelRequest", id=victim)
        for id in range(REQUESTS):
            await client.notify("$/cancelRequest", id=id)
        if seed % 4 == 0:
            return  # leaves without waiting for its answers
        await check(client)


async def check(client: Raw) -> None:
    """Every request was answered once (the harness refuses a second answer), with what was streamed."""
    for id in range(REQUESTS):
        answer = await client.response(id)
        assert ending(answer) in ENDINGS, answer
        if "result" in answer:
            assert texts(client.seen, id) == answer["result"]["text"]
    last = {frame["id"]: n for n, frame in enumerate(client.seen) if "id" in frame}
    for n, frame in enumerate(client.seen):
        if "method" in frame and "request" in frame["params"]:
            assert n < last[frame["params"]["request"]], "something came after the answer"


async def test_a_storm(own: DaemonProcess) -> None:
    await asyncio.gather(*(client_of_the_storm(own, seed) for seed in range(CLIENTS)))
    async with raw(own) as client:
        status = await client.result("s", "daemon/status")
        while status["running"] or status["connections"] > 1:
            status = await client.result("s", "daemon/status")
        assert len(own.workers()) <= len(MODELS)
        assert "Traceback" not in own.log()
        assert psutil.Process(own.process.pid).memory_info().rss < 100 * 1024 * 1024
