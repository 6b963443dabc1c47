"""Workers that crash, hang, idle or must make room: each costs only its own requests."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.daemon.workers.pool import COMMAND, choose_pair
from localspec.daemon.workers.worker import Key
from localspec.errors import ModelNotFound
from localspec.wording import MB
from tests.constraints.test_trial import COMMON
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import Raw, code, gone, raw, texts
from tests.daemon.test_pool import ignore, pool_of
from tests.models.ggufs import DRAFT, small
from tests.waiting import until


async def stall(client: Raw, id: int, **options: Any) -> None:
    """A request that has begun to answer and does not go on."""
    await client.ask(id, "generate", prompt="stall", options=options)
    while (await client.notice("stream/delta"))["params"]["request"] != id:
        pass


async def worker_pid(client: Raw, model: str) -> int:
    models = (await client.result("status", "daemon/status"))["models"]
    return int(next(m["pid"] for m in models if m["model"] == model))


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
    for id in (1, 2):
        refused = await client.response(id)
        assert code(refused) == "engine_crashed"
        assert "SIGKILL" in refused["error"]["message"]
    result = await client.result(3, "generate", prompt="again", options={"model": "victim"})
    assert result["text"] == "again "
    assert await worker_pid(client, "victim") != pid
    await other.notify("$/cancelRequest", id=1)
    assert (await other.response(1))["result"]["text"] == "stalling"


async def test_a_request_that_a_killed_worker_has_not_read_is_sent_to_a_new_one(client: Raw) -> None:
    await client.result(1, "generate", prompt="hello", options={"model": "idle"})
    process = psutil.Process(await worker_pid(client, "idle"))
    process.suspend()
    await client.ask(2, "generate", prompt="again", options={"model": "idle"})
    while not any(m["running"] for m in (await client.result(3, "daemon/status"))["models"]):
        pass
    process.kill()
    assert (await client.response(2))["result"]["text"] == "again "
    assert await worker_pid(client, "idle") != process.pid


async def test_what_ended_a_worker_is_reported(client: Raw) -> None:
    ends = {
        "kill": "was ended by SIGKILL",
        "kill SIGBUS": "was ended by SIGBUS: was /nowhere/mortal changed in place?",
        "kill SIGALRM": "the nodes of mortal did not connect",
    }
    for prompt, what in ends.items():
        refused = await client.call(1, "generate", prompt=prompt, options={"model": "mortal"})
        assert code(refused) == ("node_lost" if "nodes" in what else "engine_crashed")
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
async def test_with_all_workers_busy_another_model_is_refused(alone: Raw) -> None:
    for id, model in enumerate("abcd"):
        await stall(alone, id, model=model)
    refused = await alone.call("e", "generate", prompt="x", options={"model": "e"})
    assert code(refused) == "engine_busy"
    await alone.notify("$/cancelRequest", id=0)
    await alone.response(0)
    assert "result" in await alone.call("e", "generate", prompt="x", options={"model": "e"})


HANG = {"hang_s": 1.5}
"""long enough for the beats of a living worker to come on a busy machine"""


async def loaded(client: Raw) -> set[str]:
    return {model["model"] for model in (await client.result("r", "daemon/status"))["models"]}


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
        totals = (await client.result("r", "metrics"))["totals"]
        assert totals["localspec_worker_crashes_total"] == 1


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
async def test_an_unused_model_is_unloaded(start: StartDaemon) -> None:
    daemon = start(idle_unload_s=0.3)
    async with raw(daemon) as client, raw(daemon) as other:
        await other.ask(1, "generate", prompt="stall", options={"model": "used"})
        unused = await client.result("r", "models/load", model="unused")
        assert 0 <= unused["idle_left_s"] <= 0.3
        await until(lambda: not psutil.pid_exists(unused["pid"]), "the unused one is unloaded")
        assert await loaded(client) == {"used"}
        await other.notify("$/cancelRequest", id=1)
        assert "result" in await other.response(1)
        await until(lambda: daemon.workers() == [], "the other one is unloaded, too")


@pytest.mark.slow
async def test_each_model_may_have_a_time_of_its_own(start: StartDaemon) -> None:
    async with raw(start(idle_unload_s=0.2)) as client:
        kept = await client.result("r", "models/load", model="kept", keep_alive_s=0)
        minute = await client.result("r", "models/load", model="minute", keep_alive_s=60)
        assert kept["idle_left_s"] is None and 50 < minute["idle_left_s"] <= 60
        short = await client.result("r", "models/load", model="short")
        await until(lambda: not psutil.pid_exists(short["pid"]), "the short one is unloaded")
        assert await loaded(client) == {"kept", "minute"}
        await client.result("r", "models/load", model="kept", keep_alive_s=0.2)
        await until(lambda: not psutil.pid_exists(kept["pid"]), "the kept one is unloaded")


@pytest.mark.slow
async def test_an_unloaded_models_memory_is_back_when_that_is_answered(start: StartDaemon) -> None:
    async with raw(start(idle_unload_s=0)) as client:
        processes = {
            name: psutil.Process((await client.result("r", "models/load", model=name))["pid"])
            for name in "abc"
        }
        assert {m["idle_left_s"] for m in (await client.result("r", "daemon/status"))["models"]} == {None}
        assert await client.result("r", "models/unload", model="a") == {"models": ["a"]}
        assert gone(processes["a"]) and not gone(processes["b"])
        assert (await client.result("r", "models/unload"))["models"] == ["b", "c"]
        assert all(gone(process) for process in processes.values())
        assert await client.result("r", "models/unload") == {"models": []}


@pytest.mark.slow
async def test_a_model_at_work_is_not_unloaded(alone: Raw) -> None:
    await alone.begin(1, "generate", prompt="stall", options={"model": "busy"})
    await alone.result("r", "models/load", model="idle")
    refused = await alone.call(2, "models/unload")
    assert code(refused) == "engine_busy" and "busy" in refused["error"]["message"]
    assert await loaded(alone) == {"busy"}
    await alone.cancel(1)
    assert await alone.result("r", "models/unload", model="busy") == {"models": ["busy"]}


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
            await client.result("r", "models/load", model=model)
        assert await loaded(client) == {one, two, three}
        await client.begin(1, "generate", prompt="stall", options={"model": three})
        await client.result("r", "models/load", model=two)
        # One model's worth: the oldest idle one goes, not the older one that is at work.
        await client.result("r", "models/load", model=weighing(tmp_path / "four.gguf", 100))
        assert await loaded(client) == {two, three, str(tmp_path / "four.gguf")}
        await client.notify("$/cancelRequest", id=1)
        await client.response(1)
        # For what does not fit at all none has to go; the worker refuses it, but this one is an echo.
        huge = weighing(tmp_path / "huge.gguf", 700)
        await client.result("r", "models/load", model=huge)
        assert await loaded(client) == {two, three, str(tmp_path / "four.gguf"), huge}
        await client.result("r", "models/unload", model=huge)
        await client.result("r", "models/load", model=large)
        assert await loaded(client) == {large}


async def test_a_file_that_is_gone_after_the_choice_is_not_found(tmp_path: Path) -> None:
    """A pair that was chosen is what a worker, here a real one, opens."""
    path = Path(shutil.copy(DRAFT, tmp_path / "m.gguf"))

    def choose_and_remove(*wanted: Any) -> Any:
        pair = choose_pair(*wanted)
        os.remove(pair.target.path)
        return pair

    async with pool_of(COMMAND._replace(choose=choose_and_remove)) as pool:
        with pytest.raises(ModelNotFound, match=f"there is no file {path}"):
            async with pool.lease(Key(str(path), "none", "auto"), ignore):
                pass


async def test_a_form_that_is_not_valid_is_refused_before_a_model_is_loaded(start: StartDaemon) -> None:
    deep, gbnf = json.loads('{"items":' * 700 + "{}" + "}" * 700), {"grammar": "x", "grammar_syntax": "gbnf"}
    forms: list[dict[str, Any]] = [{"regex": "a("}, {"schema": {"not": {}}}, {"schema": deep}, gbnf]
    async with raw(start()) as client:
        for wrong in forms:
            assert code(await client.call(1, "generate", prompt="x", options=wrong)) == "invalid_options"
            assert code(await client.call(1, "session/open", options=wrong)) == "invalid_options"
        assert (await client.result(2, "daemon/status"))["models"] == []
        # The worker of these tests takes any form: it gets those that take long, and all once it is there.
        for form in ({"grammar": f"start: T\nT: {COMMON}"}, {"regex": "a("}):
            await client.result(3, "generate", prompt="x", options=form)


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
