"""One client opens a hostile clone; requests of others are answered as fast as before."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, Raw, raw
from tests.memory.hostile_repository import RULES, make, repository
from tests.waiting import soon

pytestmark = pytest.mark.slow

HANG_S = 8.0
LONGEST_S = 2.0
"""for eight tokens of the bundled model, on a loaded machine"""
SMALL = {"temperature": 0.0, "max_tokens": 8, "remember": False}


async def seconds(client: Raw, id: int) -> float:
    began = time.monotonic()
    answer = await client.call(id, "generate", prompt="def f(x):", options=SMALL)
    assert "result" in answer, answer
    return time.monotonic() - began


async def watch(client: Raw, over: asyncio.Event, times: list[float]) -> None:
    while not over.is_set() or len(times) < 20:
        times.append(await seconds(client, len(times)))
        await asyncio.sleep(0.02)  # the worker rests, and learns


async def complete(client: Raw, id: str, path: Path) -> None:
    asked = {
        "prefix": "def g(y):\n    return y\n\n",
        "suffix": "\n",
        "path": str(path),
        "options": {"max_tokens": 4},
    }
    assert "result" in await client.call(id, "completion/inline", **asked)


async def learnt(client: Raw, path: Path) -> None:
    """Wait until a harmless file is learnt, which came after all others."""
    while True:
        found = (await client.call("stats", "memory/stats"))["result"]["tables"]
        if any(f"file:{path}" in table["sources"] for table in found):
            return


@pytest.mark.parametrize("kind", RULES)
async def test_others_are_served_as_before(kind: str, start: StartDaemon, tmp_path: Path) -> None:
    hostile, harmless = make(tmp_path / "clone", kind), tmp_path / "own" / "a.py"
    repository(harmless.parent)
    daemon = start(command=REAL_DAEMON, hang_s=HANG_S, options={"model": "bundled"})
    async with raw(daemon) as victim, raw(daemon) as attacker:
        await seconds(victim, -1)
        (worker,) = [each.pid for each in daemon.workers()]
        calm, during, over = list[float](), list[float](), asyncio.Event()
        over.set()
        await watch(victim, over, calm)
        over.clear()
        watching = asyncio.create_task(watch(victim, over, during))
        for n in range(3):
            await complete(attacker, f"hostile {n}", hostile)
        await complete(attacker, "harmless", harmless)
        await soon(learnt(attacker, harmless))
        over.set()
        await watching
        assert [each.pid for each in daemon.workers()] == [worker], "the worker was ended"
        print(f"{kind}: p95 {p95(calm):.3f} s before, {p95(during):.3f} s beside it")
        assert max(during) < LONGEST_S


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]
