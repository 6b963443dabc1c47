"""Daemons whose home is deleted or replaced, and machines without some of the loopback addresses."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import psutil
import pytest

from localspec.daemon.announcement import CHECK_S
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import ECHO_DAEMON, REAL_DAEMON, DaemonProcess, gone, raw
from tests.waiting import DEADLINE_S, run, until_sync

NOTICED_S = CHECK_S + 10.0


async def answered(daemon: DaemonProcess, prompt: str) -> str:
    async with raw(daemon) as client:
        return str((await client.result(1, "generate", prompt=prompt, options={"max_tokens": 4}))["text"])


def delete(home: Path) -> None:
    """Delete a home that its daemon writes into: the rename takes it away at one moment."""
    shutil.rmtree(home.rename(home.with_name(f"{home.name}-deleted")))


@pytest.mark.slow
@pytest.mark.parametrize("command", [ECHO_DAEMON, REAL_DAEMON], ids=["echo", "real"])
def test_a_daemon_whose_home_is_deleted_ends_and_leaves_nothing(home: Path, command: tuple[str, ...]) -> None:
    daemon = DaemonProcess(home, command=(*command, "--log"))
    assert run(answered(daemon, "hello"))
    workers = daemon.workers()
    assert workers
    delete(home)
    began = time.monotonic()
    code = daemon.process.wait(DEADLINE_S)
    assert code == 0
    assert time.monotonic() - began < NOTICED_S
    assert all(map(gone, workers))
    left = [str(path) for path in home.rglob("*") if path.is_file()]
    assert left == [], "it writes into a home that was deleted"


@pytest.mark.slow
def test_what_stands_in_the_place_of_a_deleted_home_is_left_alone(home: Path) -> None:
    """The next daemon has begun in it by the time the first one ends."""
    first = DaemonProcess(home)
    delete(home)
    home.mkdir(mode=0o700)
    second = DaemonProcess(home)
    try:
        assert second.found.socket == first.found.socket and second.found.pid != first.found.pid
        assert first.process.wait(DEADLINE_S) == 0
        assert second.discovery_path.exists() and Path(second.socket).exists()
        assert run(answered(second, "hello")) == "hello "
    finally:
        assert second.stop() == 0


@pytest.mark.slow
def test_an_announcement_that_is_deleted_is_made_again(start: StartDaemon) -> None:
    daemon = start()
    before = daemon.discovery_path.read_text()
    daemon.discovery_path.unlink()
    until_sync(daemon.discovery_path.exists, "it is announced again")
    assert daemon.discovery_path.read_text() == before
    assert run(answered(daemon, "hello")) == "hello "


@pytest.mark.slow
def test_a_daemon_whose_socket_is_deleted_makes_room_for_another(home: Path, start: StartDaemon) -> None:
    daemon = start()
    Path(daemon.socket).unlink()
    assert daemon.process.wait(DEADLINE_S) == 0
    again = start()
    assert run(answered(again, "hello")) == "hello "


@pytest.mark.slow
def test_looking_after_the_home_costs_next_to_nothing(start: StartDaemon) -> None:
    process = psutil.Process(start().process.pid)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    with pytest.raises(psutil.TimeoutExpired):
        process.wait(2 * CHECK_S)
    assert sum(process.cpu_times()[:2]) - before < 0.05 * (time.monotonic() - began)
