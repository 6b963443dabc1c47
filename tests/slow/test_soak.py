"""Mixed requests to a real daemon, whose worker is killed now and then: nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress

import psutil
import pytest

from localspec.client import Client, connect
from localspec.client.wire import Stream
from localspec.errors import EngineCrashed, InvalidOptions, SessionNotFound
from localspec.protocol.messages import ChatSend
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, Result
from tests.client.conftest import own_home
from tests.slow.share import share
from tests.waiting import DEADLINE_S, POLL_S

pytestmark = pytest.mark.slow

REQUESTS, CONNECTIONS, KILLS = share(2400), 9, 5
EXACT = Options(temperature=0.0, max_tokens=12, proposer="auto")
TEXTS = ("def add(a, b):\n", "import json\n\ndef load(", "class Queue:\n    ", "for i in range(10):\n")
MORE_FILES, MORE_BYTES = 4, 48 << 20


class Soaker:
    """Requests one after the other on a connection, any of which may be left or cancelled."""

    def __init__(self, seed: int, counts: Counter[str], fixed: set[str]) -> None:
        self.rng, self.counts, self.fixed = random.Random(seed), counts, fixed
        self.session = ""

    async def run(self, requests: int) -> None:
        done = 0
        while done < requests:
            async with await connect(start=False, name="soak") as client:
                left = False
                while done < requests and not left:
                    done += 1
                    try:
                        left = await asyncio.wait_for(self.one(client), 4 * DEADLINE_S)
                    except EngineCrashed:
                        self.counts["crashed"] += 1
                    self.counts["done"] += 1

    async def one(self, client: Client) -> bool:
        """One request; True if its connection is to be closed in the middle of it."""
        text = self.rng.choice(TEXTS)
        options = Options(temperature=self.rng.choice((0.0, 0.8)), max_tokens=6, seed=self.rng.randrange(99))
        match self.rng.choices(range(8), (25, 10, 12, 2, 15, 20, 10, 3))[0]:
            case 0:
                prompt = text * self.rng.choice((1, 1, 20))
                self.ended(await client.generate(prompt, raw=True, options=options).result())
            case 1:
                self.fixed.add((await client.generate("def f(x):", raw=True, options=EXACT).result()).text)
            case 2:
                self.ended(await (await self.begun(client, text)).cancel())
            case 3:
                await self.begun(client, text)
                return True
            case 4:
                if not self.session or self.rng.random() < 0.2:
                    self.session = (await client.open(private=self.rng.random() < 0.3).result()).session
                with suppress(SessionNotFound):  # a private one went with its connection
                    await client.session(self.session)
                    turn = ChatSend(session=self.session, content="What is a list?", options=options)
                    self.ended(await client.chat(turn).result())
            case 5:
                max_ms = self.rng.choice((1, 5, 200, 60_000))
                self.ended((await client.complete(text, "", options=options, max_ms=max_ms).result()).result)
            case 6:
                await client.sessions()
                await client.metrics()
            case _:
                with pytest.raises(InvalidOptions):
                    await client.request("generate", dict, {"prompt": "x", "options": {"k": 99}})
        return False

    async def begun(self, client: Client, text: str) -> Stream[Result]:
        stream = client.generate(text, raw=True, options=Options(max_tokens=300))
        parts = aiter(stream)
        for _ in range(self.rng.randrange(4)):
            await anext(parts, None)
        return stream

    def ended(self, result: Result) -> None:
        self.counts[result.finish_reason] += 1


async def kill_now_and_then(client: Client, counts: Counter[str]) -> None:
    for number in range(1, KILLS + 1):
        while counts["done"] < REQUESTS * number / (KILLS + 1):
            await asyncio.sleep(POLL_S)
        for model in (await client.status()).models:
            os.kill(model.pid, signal.SIGKILL)


async def warm(client: Client) -> tuple[int, int]:
    """Have the model loaded, where the daemon has no other client; its files and bytes then."""
    async with asyncio.timeout(DEADLINE_S):
        while (status := await client.status()).connections > 1 or status.running:
            await asyncio.sleep(POLL_S)
    with suppress(EngineCrashed):  # its worker was killed just now
        await client.generate("x", raw=True, options=EXACT).result()
    await client.generate("x", raw=True, options=EXACT).result()
    process = psutil.Process(status.pid)
    return process.num_fds(), process.memory_info().rss


async def every_sequence_is_free(client: Client) -> None:
    """As many requests as there are cache sequences stream at once: were one leaked, the last would wait."""
    options = Options(temperature=0.0, proposer="none")
    question = "What does textwrap.dedent do?"
    streams = [client.generate(question, options=options) for _ in range(EngineConfig().parallel)]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(anext(aiter(stream)) for stream in streams))
    endings = [(await stream.cancel()).finish_reason for stream in streams]
    assert endings == ["cancelled"] * len(streams), f"they did not run at once: {endings}"


async def test_nothing_is_lost() -> None:
    counts, fixed = Counter[str](), set[str]()
    with own_home():
        async with await connect(name="soak") as client:
            files, size = await warm(client)
            killing = asyncio.create_task(kill_now_and_then(client, counts))
            each = REQUESTS // CONNECTIONS
            await asyncio.gather(*(Soaker(seed, counts, fixed).run(each) for seed in range(CONNECTIONS)))
            await killing
            files_after, size_after = await warm(client)
            await every_sequence_is_free(client)
    print(dict(counts), f"{files_after - files} files, {(size_after - size) >> 20} MiB more")
    assert len(fixed) == 1, "the fixed prompt's text changed"
    assert counts["done"] == CONNECTIONS * each and counts["stop"] + counts["length"] > REQUESTS // 3
    assert counts["cancelled"] and counts["deadline"]
    assert files_after <= files + MORE_FILES and size_after <= size + MORE_BYTES
