"""Workers that hang, idle, are loaded and unloaded, and must share the memory there is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.units import MB
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Raw, code, gone, raw, texts
from tests.models.ggufs import small
from tests.waiting import until

HANG = {"hang_s": 1.5}
"""long enough for a worker that is alive to be heard on a busy machine"""


async def call(client: Raw, method: str, **params: Any) -> dict[str, Any]:
    answer = await client.call(method, method, **params)
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


async def loaded(client: Raw) -> set[str]:
    return {model["model"] for model in (await call(client, "daemon/status"))["models"]}


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["hang", "spin"])
async def test_a_worker_that_hangs_costs_its_own_requests_only(start: StartDaemon, prompt: str) -> None:
    daemon = start(**HANG)
    async with raw(daemon) as client, raw(daemon) as other:
        await other.begin(1, "generate", prompt="stall", options={"model": "bystander"})
        refused = await client.call(1, "generate", prompt=prompt, options={"model": "victim"})
        assert code(refused) == "engine_crashed"
        assert "hung while answering" in refused["error"]["message"]
        assert texts(client.seen, 1) in ("hanging", "stalling")
        result = await client.result(2, "generate", prompt="again", options={"model": "victim"})
        assert result["text"] == "again "
        await other.notify("$/cancelRequest", id=1)
        assert (await other.response(1))["result"]["text"] == "stalling"
        totals = (await call(client, "metrics"))["totals"]
        assert totals["localspec_worker_crashes_total"] == 1


@pytest.mark.slow
async def test_a_stopped_idle_worker_is_found_when_a_request_comes(start: StartDaemon) -> None:
    daemon = start(**HANG)
    async with raw(daemon) as client:
        await client.call(1, "generate", prompt="hello")
        (worker,) = daemon.workers()
        worker.suspend()
        refused = await client.call(2, "generate", prompt="hello")
        assert code(refused) == "engine_crashed" and "hung" in refused["error"]["message"]
        await until(lambda: gone(worker), "the stopped worker is gone")
        assert (await client.result(3, "generate", prompt="hello"))["text"] == "hello "


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gate", "slow"])
async def test_a_load_that_hangs_is_given_up(start: StartDaemon, home: Path, model: str) -> None:
    os.mkfifo(home / "gate")
    name = f"gate:{home / 'gate'}" if model == "gate" else model
    daemon = start(hang_s=0.05)
    async with raw(daemon) as client:
        refused = await client.call(1, "models/load", model=name)
        assert code(refused) == "engine_crashed"
        assert "hung while loading" in refused["error"]["message"]
        assert await loaded(client) == set()
        await until(lambda: daemon.workers() == [], "its process is gone")


@pytest.mark.slow
async def test_a_daemon_that_was_stopped_itself_blames_no_worker(start: StartDaemon) -> None:
    daemon = start(**HANG)
    async with raw(daemon) as client:
        await client.begin(1, "generate", prompt="stall")
        process = psutil.Process(daemon.process.pid)
        for _ in range(2):
            process.suspend()
            await asyncio.sleep(2.0)  # not to wait for anything: so long nobody hears the worker
            process.resume()
            assert "result" in await client.call("s", "daemon/status")
        await client.cancel(1)


@pytest.mark.slow
async def test_a_model_that_nobody_uses_is_unloaded_and_told(start: StartDaemon) -> None:
    daemon = start(idle_unload_s=0.3)
    async with raw(daemon) as client, raw(daemon) as other:
        await client.call("e", "events/subscribe", kinds=["model"])
        await other.ask(1, "generate", prompt="stall", options={"model": "used"})
        unused = await call(client, "models/load", model="unused")
        assert 0 <= unused["idle_left_s"] <= 0.3
        while (await client.notice("event"))["params"] != {
            "kind": "model",
            "model": "unused",
            "change": "unloaded",
        }:
            pass
        assert not psutil.pid_exists(unused["pid"])
        assert await loaded(client) == {"used"}
        await other.notify("$/cancelRequest", id=1)
        assert "result" in await other.response(1)
        await until(lambda: daemon.workers() == [], "the other one is unloaded, too")


@pytest.mark.slow
async def test_each_model_may_have_a_time_of_its_own(start: StartDaemon) -> None:
    async with raw(start(idle_unload_s=0.2)) as client:
        kept = await call(client, "models/load", model="kept", keep_alive_s=0)
        minute = await call(client, "models/load", model="minute", keep_alive_s=60)
        assert kept["idle_left_s"] is None and 50 < minute["idle_left_s"] <= 60
        short = await call(client, "models/load", model="short")
        await until(lambda: not psutil.pid_exists(short["pid"]), "the short one is unloaded")
        assert await loaded(client) == {"kept", "minute"}
        await call(client, "models/load", model="kept", keep_alive_s=0.2)
        await until(lambda: not psutil.pid_exists(kept["pid"]), "the kept one is unloaded")


@pytest.mark.slow
async def test_an_unloaded_models_memory_is_back_when_that_is_answered(start: StartDaemon) -> None:
    async with raw(start(idle_unload_s=0)) as client:
        processes = {
            name: psutil.Process((await call(client, "models/load", model=name))["pid"]) for name in "abc"
        }
        assert {m["idle_left_s"] for m in (await call(client, "daemon/status"))["models"]} == {None}
        assert await call(client, "models/unload", model="a") == {"models": ["a"]}
        assert gone(processes["a"]) and not gone(processes["b"])
        assert (await call(client, "models/unload"))["models"] == ["b", "c"]
        assert all(gone(process) for process in processes.values())
        assert await call(client, "models/unload") == {"models": []}


@pytest.mark.slow
async def test_a_model_at_work_is_not_unloaded(start: StartDaemon) -> None:
    async with raw(start()) as client:
        await client.begin(1, "generate", prompt="stall", options={"model": "busy"})
        await call(client, "models/load", model="idle")
        refused = await client.call(2, "models/unload")
        assert code(refused) == "engine_busy" and "busy" in refused["error"]["message"]
        assert await loaded(client) == {"busy"}
        await client.cancel(1)
        assert await call(client, "models/unload", model="busy") == {"models": ["busy"]}


@pytest.mark.slow
async def test_a_model_is_unloaded_by_any_of_its_names(start: StartDaemon, tmp_path: Path) -> None:
    file = tmp_path / "one.gguf"
    file.write_bytes(small())
    async with raw(start()) as client:
        for name in (str(file), f"{tmp_path}/./one.gguf"):
            await call(client, "models/load", model=str(file))
            assert len((await call(client, "models/unload", model=name))["models"]) == 1
        assert await call(client, "models/unload", model=str(file)) == {"models": []}
        refused = await client.call(1, "models/unload", model="no-such-model")
        assert code(refused) == "model_not_found"


async def test_a_load_that_is_given_up_goes_on_for_the_next_one(start: StartDaemon, home: Path) -> None:
    os.mkfifo(home / "gate")
    name = f"gate:{home / 'gate'}"
    async with raw(start()) as client:
        await client.ask(1, "models/load", model=name)
        await client.notice("model/progress")
        await client.notify("$/cancelRequest", id=1)
        assert code(await client.response(1)) == "gone"
        await client.ask(2, "models/load", model=name)
        (home / "gate").write_text("open")
        assert (await client.response(2))["result"]["model"] == name


def weighing(path: Path, megabytes: int) -> str:
    """A model's file of that size, most of which is a hole."""
    path.write_bytes(small())
    os.truncate(path, megabytes * MB)
    return str(path)


@pytest.mark.slow
async def test_the_least_recently_used_give_way_when_memory_is_short(
    start: StartDaemon, tmp_path: Path
) -> None:
    one, two, three, large = (
        weighing(tmp_path / f"{name}.gguf", size)
        for name, size in (("one", 100), ("two", 100), ("three", 150), ("large", 500))
    )
    async with raw(start(memory_mb=3 * 100 + 360)) as client:
        for model in (one, two, three, two, one):
            await call(client, "models/load", model=model)
        assert await loaded(client) == {one, two, three}
        await client.begin(1, "generate", prompt="stall", options={"model": three})
        await call(client, "models/load", model=two)
        # One model's worth: the oldest idle one goes, not the older one that is at work.
        await call(client, "models/load", model=weighing(tmp_path / "four.gguf", 100))
        assert await loaded(client) == {two, three, str(tmp_path / "four.gguf")}
        await client.notify("$/cancelRequest", id=1)
        await client.response(1)
        # For what does not fit at all nobody has to go; the worker refuses it, but this one is an echo.
        huge = weighing(tmp_path / "huge.gguf", 700)
        await call(client, "models/load", model=huge)
        assert await loaded(client) == {two, three, str(tmp_path / "four.gguf"), huge}
        await call(client, "models/unload", model=huge)
        await call(client, "models/load", model=large)
        assert await loaded(client) == {large}
