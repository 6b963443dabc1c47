"""A short soak of the real daemon: mixed requests, random cancels and disconnects, killed workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from localspec.client import connect
from localspec.errors import EngineCrashed, LocalspecError
from localspec.protocol.options import Options
from tests.cli.harness import CONFIG
from tests.waiting import DEADLINE_S, POLL_S, soon

pytestmark = pytest.mark.slow

REQUESTS, CLIENTS, KILLS = 600, 6, 5
GREEDY = Options(temperature=0.0, max_tokens=24, proposer="auto")


async def one_client(number: int, rng: random.Random, expected: str, counts: dict[str, int]) -> None:
    """Requests one after the other; some are cancelled, some connections dropped in the middle."""
    done = 0
    while done < REQUESTS // CLIENTS:
        async with await connect(name=f"soak {number}") as client:
            while done < REQUESTS // CLIENTS:
                done += 1
                stream = client.generate("def f(x):", raw=True, options=GREEDY)
                what = rng.random()
                try:
                    if what < 0.1:
                        await anext(aiter(stream), None)
                        break  # hang up with a request running
                    result = await soon(stream.cancel() if what < 0.3 else stream.result())
                except EngineCrashed:
                    counts["engine_crashed"] += 1
                    continue
                counts[result.finish_reason] += 1
                assert expected.startswith(result.text)
                assert result.text == expected or result.finish_reason == "cancelled"


async def killer(kills: int) -> None:
    """Kills the worker now and then; ends when it has done so often enough."""
    async with await connect(name="killer") as client:
        for _ in range(kills):
            await asyncio.sleep(1.0)  # not to wait for anything: this is how often it kills
            for model in (await client.status()).models:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(model.pid, signal.SIGKILL)


async def soak() -> None:
    async with await connect() as client:
        expected = (await client.generate("def f(x):", raw=True, options=GREEDY).result()).text
        daemon = psutil.Process((await client.status()).pid)
        files, size = daemon.num_fds(), daemon.memory_info().rss
        counts = dict.fromkeys(("stop", "length", "cancelled", "engine_crashed"), 0)
        rng = random.Random(3)
        await asyncio.gather(
            killer(KILLS),
            *(one_client(n, random.Random(rng.random()), expected, counts) for n in range(CLIENTS)),
        )
        async with asyncio.timeout(DEADLINE_S):
            # The last client's connection is closed here; the daemon may hear of it a little later.
            while (status := await client.status()).connections > 1:
                await asyncio.sleep(POLL_S)
        print(counts, f"{daemon.memory_info().rss - size} bytes, {daemon.num_fds() - files} files more")
        assert counts["length"] + counts["stop"] > REQUESTS // 2
        assert status.running == 0
        assert daemon.num_fds() <= files + 2
        assert daemon.memory_info().rss - size < 20_000_000
        await client.shutdown()


def test_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        monkeypatch.setenv("LOCALSPEC_HOME", home)
        (Path(home) / "config").mkdir()
        (Path(home) / "config" / "config.toml").write_text(CONFIG)
        try:
            asyncio.run(asyncio.wait_for(soak(), 300))
        finally:
            with contextlib.suppress(LocalspecError):
                asyncio.run(_stop())


async def _stop() -> None:
    async with await connect(start=False) as client:
        await client.shutdown()
