"""Many clients at once, cancelling, leaving and losing their workers: every request is answered once."""

from __future__ import annotations

import asyncio
import random

import psutil
import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import DaemonProcess, Frame, Raw, raw, texts

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


@pytest.mark.slow
async def test_a_storm(start: StartDaemon) -> None:
    daemon = start()
    await asyncio.gather(*(client_of_the_storm(daemon, seed) for seed in range(CLIENTS)))
    async with raw(daemon) as client:
        status = await client.result("s", "daemon/status")
        while status["running"] or status["connections"] > 1:
            status = await client.result("s", "daemon/status")
        assert len(daemon.workers()) <= len(MODELS)
        assert "Traceback" not in daemon.log()
        assert psutil.Process(daemon.process.pid).memory_info().rss < 100 * 1024 * 1024
