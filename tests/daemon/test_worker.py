"""Workers that crash, exit, cannot load, or must make room: each costs only its own requests."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.daemon.workers.worker import SPINS, short_spins
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Raw, code, raw, texts
from tests.waiting import until


async def stall(client: Raw, id: int, **options: Any) -> None:
    """A request that has begun to answer and does not go on."""
    await client.ask(id, "generate", prompt="stall", options=options)
    while (await client.notice("stream/delta"))["params"]["request"] != id:
        pass


async def worker_pid(client: Raw, model: str) -> int:
    models = (await client.result("status", "daemon/status"))["models"]
    return int(next(m["pid"] for m in models if m["model"] == model))


async def test_a_worker_waits_shortly_for_its_threads(client: Raw) -> None:
    """Unless the user has other wishes."""
    await stall(client, 1, model="one")
    assert psutil.Process(await worker_pid(client, "one")).environ()["GOMP_SPINCOUNT"] == SPINS
    assert short_spins({"OMP_WAIT_POLICY": "active"}) == short_spins({"GOMP_SPINCOUNT": "7"}) == {}


async def test_a_model_does_no_chores_while_another_is_at_work(home: Path, start: StartDaemon) -> None:
    said = home / "cache" / "rest of other"
    async with raw(start()) as client:
        await client.result(1, "generate", prompt="hello", options={"model": "other"})
        await stall(client, 2, model="one")
        await until(said.exists, "the other model learns of it")
        assert said.read_text() == "False"
        await client.cancel(2)
        await until(lambda: said.read_text() == "True", "it may go on")


async def test_a_killed_worker_costs_its_own_requests_only(client: Raw, other: Raw) -> None:
    await stall(client, 1, model="victim")
    await stall(client, 2, model="victim")
    await stall(other, 1, model="bystander")
    pid = await worker_pid(client, "victim")
    psutil.Process(pid).kill()
    killed = time.monotonic()
    for id in (1, 2):
        refused = await client.response(id)
        assert code(refused) == "engine_crashed"
        assert "SIGKILL" in refused["error"]["message"]
    latency = time.monotonic() - killed
    print(f"engine_crashed after {latency * 1000:.0f} ms")
    result = await client.result(3, "generate", prompt="again", options={"model": "victim"})
    assert result["text"] == "again "
    assert await worker_pid(client, "victim") != pid
    await other.notify("$/cancelRequest", id=1)
    assert (await other.response(1))["result"]["text"] == "stalling"


async def test_what_ended_a_worker_is_told(client: Raw) -> None:
    ends = {"kill": "was ended by SIGKILL", "exit 3": "exited with code 3"}
    ends["kill SIGBUS"] = "was ended by SIGBUS: was /nowhere/mortal changed in place?"
    for prompt, what in ends.items():
        refused = await client.call(1, "generate", prompt=prompt, options={"model": "mortal"})
        assert code(refused) == "engine_crashed"
        assert what in refused["error"]["message"]
        assert texts(client.seen, 1) == "dying"
        client.seen.clear()
    totals = (await client.result(2, "metrics"))["totals"]
    assert totals["localspec_worker_crashes_total"] >= 2


async def test_a_load_that_fails_says_why_and_is_tried_anew(client: Raw) -> None:
    for _ in range(2):
        refused = await client.call(1, "generate", prompt="x", options={"model": "broken"})
        assert code(refused) == "model_invalid"
        assert refused["error"]["message"] == "this model is broken"
        died = await client.call(2, "session/open", options={"model": "dies"})
        assert code(died) == "engine_crashed"
        assert "code 7" in died["error"]["message"]
    status = await client.result(3, "daemon/status")
    assert {m["model"] for m in status["models"]}.isdisjoint({"broken", "dies"})


@pytest.mark.slow
async def test_requests_that_come_during_a_load_share_it(start: StartDaemon, home: Path) -> None:
    gate = home / "gate"
    os.mkfifo(gate)
    options = {"model": f"gate:{gate}"}
    daemon = start()
    async with raw(daemon) as one, raw(daemon) as other:
        for client in (one, other):
            await client.ask(1, "generate", prompt="hello", options=options)
            await client.ask(2, "session/open", options=options)
        loading = (await one.notice("model/progress"))["params"]
        assert loading == {"model": f"gate:{gate}", "stage": "weights", "fraction": 0.5}
        assert len(daemon.workers()) == 1
        gate.write_text("open")
        for client in (one, other):
            answers = [await client.response(1), await client.response(2)]
            assert all("result" in answer for answer in answers)
        assert len(daemon.workers()) == 1


@pytest.mark.slow
async def test_the_worker_that_idled_longest_makes_room(start: StartDaemon) -> None:
    daemon = start()
    async with raw(daemon) as client:
        for model in "abcda":
            await client.call(model, "generate", prompt="x", options={"model": model})
        await stall(client, 1, model="b")
        await client.call(2, "generate", prompt="x", options={"model": "e"})
        models = (await client.result(3, "daemon/status"))["models"]
        assert {m["model"] for m in models} == {"a", "b", "d", "e"}
        await until(lambda: len(daemon.workers()) == 4, "the evicted worker is gone")


@pytest.mark.slow
async def test_with_all_workers_busy_another_model_is_refused(start: StartDaemon) -> None:
    async with raw(start()) as client:
        for id, model in enumerate("abcd"):
            await stall(client, id, model=model)
        refused = await client.call("e", "generate", prompt="x", options={"model": "e"})
        assert code(refused) == "engine_busy"
        await client.notify("$/cancelRequest", id=0)
        await client.response(0)
        assert "result" in await client.call("e", "generate", prompt="x", options={"model": "e"})


async def test_a_session_says_what_answers_it(client: Raw) -> None:
    opened = await client.result(1, "session/open", options={"proposer": "prompt-lookup"})
    assert re.fullmatch("[0-9a-f]{16}", opened["session"])
    assert opened["pairing"] == {
        "target": "bundled",
        "draft": "stdlib-1m",
        "proposer": "prompt-lookup",
        "backend": "toy",
        "reason": "it echoes; the bundled pair",
    }
