"""Faults that need real models: memory that ends, and a clock that jumps.

Faults of workers, clients, disks and queues are tested with echo workers, in tests/daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Frame, Raw, code, gone, raw
from tests.waiting import until

__all__ = ["home", "start"]

pytestmark = pytest.mark.slow

PROMPT = {"prompt": "def f(x):", "raw": True}
QUESTION = "What does textwrap.dedent do?"
LONG: Frame = {"temperature": 0, "proposer": "none", "backend": "llama_cpp"}
"""greedy text of a small model repeats itself until the context is full: for a second or two"""
MIB = 1 << 20
SHORT: Frame = {"temperature": 0, "max_tokens": 32, "backend": "llama_cpp"}
CRASHED = ("engine_crashed", "out_of_memory")
CLOCK = """
import os, time
_now, _path = time.time, os.environ.get("LOCALSPEC_TEST_CLOCK")
if _path:
    def jumping():
        with open(_path) as file:
            return _now() + float(file.read() or 0)
    time.time = jumping
"""
"""the wall clock of the daemon and its workers goes wrong by the seconds in a file"""


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    clock = home / "clock"
    clock.write_text("0")
    (home / "sitecustomize.py").write_text(CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(home))
    monkeypatch.setenv("LOCALSPEC_TEST_CLOCK", str(clock))
    yield clock


async def answer(client: Raw, id: str) -> str:
    """The text of a short answer, which is the same each time."""
    text: str = (await client.result(id, "generate", options=SHORT, **PROMPT))["text"]
    return text


async def begin(client: Raw, daemon: DaemonProcess) -> psutil.Process:
    """Begin a long answer as request ``victim``; returns its worker."""
    await client.begin("victim", "generate", prompt=QUESTION, options=LONG)
    (worker,) = daemon.workers()
    return worker


async def test_a_worker_without_a_byte_more_costs_its_own_requests(start: StartDaemon) -> None:
    daemon = start(command=REAL_DAEMON, hang_s=3.0)
    async with raw(daemon) as client:
        expected = await answer(client, "before")
        worker = await begin(client, daemon)
        worker.rlimit(psutil.RLIMIT_AS, (1, -1))
        await client.notify("$/cancelRequest", id="victim")
        many = "".join(f"value_{number} = " for number in range(60))
        await client.ask("more", "generate", prompt=many, raw=True, options=SHORT)
        for id in ("victim", "more"):
            ended = await client.response(id)
            assert "result" in ended or code(ended) in CRASHED, ended
        await client.call("gone", "models/unload", model="bundled")  # it may have survived
        await until(lambda: gone(worker), "the worker is gone")
        assert await answer(client, "after") == expected


async def test_a_model_without_memory_to_load_is_a_typed_error(start: StartDaemon) -> None:
    daemon = start(command=REAL_DAEMON)
    process = psutil.Process(daemon.process.pid)
    async with raw(daemon) as client:
        # Of what is written to: address space is mostly what its threads may want one day.
        before = process.rlimit(psutil.RLIMIT_DATA)
        process.rlimit(psutil.RLIMIT_DATA, (process.memory_info().data + 32 * MIB, before[1]))
        refused = await client.call("victim", "generate", options=SHORT, **PROMPT)
        process.rlimit(psutil.RLIMIT_DATA, before)
        error = refused["error"]["data"]
        assert error["code"] in (*CRASHED, "model_invalid", "model_too_large", "internal"), refused
        assert error["message"] and error["remedy"]
        assert await answer(client, "after")


async def test_a_clock_that_jumps_by_days_unloads_no_model(start: StartDaemon, clock: Path) -> None:
    daemon = start(command=REAL_DAEMON, hang_s=3.0)
    async with raw(daemon) as client:
        expected = await answer(client, "before")
        worker = await begin(client, daemon)
        for days in (400, -400, 0):
            clock.write_text(str(days * 86400.0))
            assert await answer(client, f"jump {days}") == expected
        await client.cancel("victim")
        assert daemon.workers() == [worker]
