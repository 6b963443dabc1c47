"""Workers and their pool, without a daemon around them: real processes, started here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from localspec.config import Config
from localspec.daemon.metrics import MetricsRegistry
from localspec.daemon.workers.job import WorkerJob
from localspec.daemon.workers.pool import Pool, Program, key_of
from localspec.daemon.workers.worker import Key, WorkerProcess
from localspec.errors import EngineCrashed, InvalidOptions, ShuttingDown
from localspec.protocol.frames import DELTA, PROGRESS, Loading, Streamed
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, Request, TextPrompt
from tests.daemon.echo_daemon import WORKER
from tests.daemon.harness import gone
from tests.models.ggufs import small
from tests.waiting import soon, until

ECHO = Key("echo", "none", "toy")
NO_CONFIG = Config()


def program(text: str) -> Program:
    """A worker that runs this program, with ``fd`` its end of the socket."""
    return WORKER._replace(command=(sys.executable, "-c", f"import os, sys; fd = int(sys.argv[2]); {text}"))


@asynccontextmanager
async def pool_of(program: Program = WORKER, config: Config = NO_CONFIG) -> AsyncIterator[Pool]:
    pool = Pool(config, MetricsRegistry(), program)
    try:
        yield pool
    finally:
        await pool.close()


def ignore(*event: object) -> None:
    """Ignore an event."""


def submit(worker: WorkerProcess, prompt: str, taken: list[Streamed]) -> WorkerJob:
    return worker.submit(Request(prompt=TextPrompt(prompt)), taken.append)


def test_what_options_name_which_worker() -> None:
    assert key_of(Options()) == ("bundled", "auto", "auto")
    assert key_of(Options(model="m", draft="d", backend="mlx", temperature=1.0)) == ("m", "d", "mlx")


async def test_a_lease_lends_a_loaded_worker() -> None:
    async with pool_of() as pool:
        loading: list[Loading] = []
        async with pool.lease(ECHO, lambda _, frame: loading.append(frame)) as (worker, *_):
            assert [(frame.stage, frame.fraction) for frame in loading] == [("weights", 0.5)]
            assert [(w.key, ready.model) for w, ready in pool.list_loaded()] == [(ECHO, "echo")]
            taken: list[Streamed] = []
            result = await soon(submit(worker, "one two", taken).end)
            assert result.text == "one two "
            assert [event.method for event in taken] == [PROGRESS, DELTA, DELTA]
            assert worker.users == 1
        assert worker.users == 0
        async with pool.lease(ECHO, ignore) as (again, *_):
            assert again is worker


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (WORKER._replace(command=("/no/such/worker",)), "could not be started: No such file"),
        (program("sys.exit(4)"), "exited with code 4"),
        (program("os.kill(os.getpid(), 11)"), "was ended by SIGSEGV"),
        (program("os.close(fd); import signal; signal.pause()"), "closed its socket and was killed"),
        (
            program("os.write(fd, b'\\x05\\0\\0\\0hello'); os.read(fd, 1); import signal; signal.pause()"),
            "damaged frame",
        ),
        (program("os.write(fd, b'\\xff\\xff\\xff\\xff'); import signal; signal.pause()"), "damaged frame"),
    ],
)
async def test_a_worker_that_is_none_costs_an_error(program: Program, what: str) -> None:
    async with pool_of(program) as pool:
        with pytest.raises(EngineCrashed, match=what):
            async with pool.lease(ECHO, ignore):
                pass


async def test_an_ended_worker_takes_no_more() -> None:
    async with pool_of() as pool, pool.lease(ECHO, ignore) as (worker, *_):
        await soon(asyncio.wait([submit(worker, "kill", []).end]))
        with pytest.raises(EngineCrashed, match="SIGKILL"):
            submit(worker, "hello", [])
        assert not worker.usable


WRONG = Options(grammar="(" * 100_000)
"""a form that is not valid, and longer than a pipe holds"""


async def test_a_form_whose_turn_comes_after_the_load_is_left_to_the_worker() -> None:
    async with pool_of() as pool:
        async with pool._form_turn:
            waiting = asyncio.create_task(pool.check_form(ECHO, WRONG))
            async with pool.lease(ECHO, ignore):
                pass
        await soon(waiting)


async def test_the_process_that_tries_forms_ends_with_that() -> None:
    others = psutil.Process().children()
    async with pool_of() as pool:
        for _ in range(2):
            with pytest.raises(InvalidOptions):
                await soon(pool.check_form(ECHO, WRONG))
            assert psutil.Process().children() == others


async def test_closing_ends_every_worker_and_fails_its_jobs() -> None:
    async with pool_of() as pool:
        async with (
            pool.lease(ECHO, ignore) as (worker, *_),
            pool.lease(Key("b", "none", "toy"), ignore) as (other, *_),
        ):
            assert worker.pid is not None and other.pid is not None
            processes = [psutil.Process(worker.pid), psutil.Process(other.pid)]
            jobs = [submit(worker, "stall", []), submit(other, "deaf", [])]
            await pool.close()
            for job in jobs:
                with pytest.raises(ShuttingDown):
                    await soon(job.end)
            assert all(gone(process) for process in processes)
        with pytest.raises(ShuttingDown):
            async with pool.lease(ECHO, ignore):
                pass


async def test_closing_during_a_load_ends_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = Pool(Config(), MetricsRegistry(), WORKER)
    loading: list[Loading] = []

    async def lease() -> None:
        async with pool.lease(Key(f"gate:{gate}", "none", "toy"), lambda _, frame: loading.append(frame)):
            raise AssertionError("it was loaded")

    waiting = asyncio.create_task(lease())
    await until(lambda: bool(loading), "it loads")
    await pool.close()
    with pytest.raises(ShuttingDown):
        await soon(waiting)


async def test_a_file_that_has_changed_is_loaded_anew(tmp_path: Path) -> None:
    """At once where the worker is idle; else the requests under way end in the old one."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(small())
    key = Key(str(path), "none", "auto")
    async with pool_of() as pool:
        async with pool.lease(key, ignore) as (first, *_):
            pass
        async with pool.lease(key, ignore) as (again, *_):
            assert again is first
        path.write_bytes(small() + b"0")
        async with pool.lease(key, ignore) as (second, *_):
            assert second is not first and not first.usable
            path.unlink()
            path.write_bytes(small() + b"1")
            async with pool.lease(Key(f"{path.parent}/./tiny.gguf", "none", "auto"), ignore) as (third, *_):
                assert third is not second
            assert (await soon(submit(second, "one two", []).end)).text == "one two "
        async with pool.lease(key, ignore) as (again, *_):
            assert again is third


async def test_an_idle_model_leaves_the_server_that_another_one_needs(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.gguf").write_bytes(small())
    one, other = (Key(str(tmp_path / f"{name}.gguf"), "none", "auto") for name in ("one", "other"))
    async with pool_of(config=Config(engine=EngineConfig(rpc=("127.0.0.1:1",)))) as pool:
        async with pool.lease(one, ignore) as (first, *_):
            pass
        async with pool.lease(other, ignore) as (second, *_):
            assert second.usable and not first.usable
        async with pool.lease(other, ignore) as (again, *_):
            assert again is second
