"""Daemons start, announce themselves, stop, are killed, and lose their home."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from filelock import FileLock

from localspec import home as homes
from localspec._version import __version__
from localspec.daemon.server import Announcement, claim, most_connections
from localspec.errors import DaemonUnavailable, ExitCode
from localspec.protocol.messages import Discovery
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import ECHO_DAEMON, DaemonProcess, code, gone, raw, write_config
from tests.daemon.test_history import stored
from tests.waiting import DEADLINE_S, until_sync

MIB = 1024 * 1024


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_what_it_leaves_on_disk_is_private(daemon: DaemonProcess) -> None:
    found = json.loads(daemon.discovery_path.read_text())
    assert found == {
        "pid": daemon.process.pid,
        "version": __version__,
        "protocol": 1,
        "socket": str(daemon.home / "runtime" / "daemon.sock"),
    }
    history = ("history.sqlite", "history.sqlite-wal", "history.sqlite-shm")
    for name in ("runtime/daemon.json", "runtime/daemon.sock", *(f"data/{each}" for each in history)):
        assert mode(daemon.home / name) == 0o600, name
    for name in ("runtime", "data"):
        assert mode(daemon.home / name) == 0o700, name


def test_it_listens_on_no_port_by_default_nor_by_settings_that_are_gone(start: StartDaemon) -> None:
    daemon = start(tcp=True, port=0)
    assert psutil.Process(daemon.process.pid).net_connections("inet") == []
    assert "left out, as there is no setting named 'daemon.tcp'" in daemon.log()


async def test_it_is_small_when_idle(own: DaemonProcess) -> None:
    process = psutil.Process(own.process.pid)
    sizes = [process.memory_info().rss]
    async with raw(own) as client:
        for method in ("models/list", "session/list", "daemon/status"):
            assert "result" in await client.call(method, method)
            sizes.append(process.memory_info().rss)
    print("idle daemon:", *(f"{size / MIB:.0f}" for size in sizes), "MiB resident")
    assert max(sizes) < 80 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_gracefully_and_keeps_the_chat_that_it_cuts_short(
    own: DaemonProcess, number: int
) -> None:
    async with raw(own) as client:
        session = (await client.result(1, "session/open"))["session"]
        await client.begin(2, "chat/send", session=session, content="stall")
        (worker,) = own.workers()
        began = time.monotonic()
        own.process.send_signal(number)
        result = (await client.response(2))["result"]
        assert (result["text"], result["finish_reason"]) == ("stalling", "cancelled")
        assert await client.close_code() == 1001
    assert own.process.wait(DEADLINE_S) == 0
    print(f"stopped after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < 3
    assert not own.discovery_path.exists() and not Path(own.socket).exists()
    assert gone(worker)
    assert stored(own) == [("user", "stall", "complete"), ("assistant", "stalling", "cancelled")]


ENDED_AT_ONCE = """
import os, signal
from localspec.daemon.__main__ import main
from localspec.daemon.server import DaemonServer
listen = DaemonServer._listen
async def listen_and_be_stopped(self):
    await listen(self)
    os.kill(os.getpid(), signal.SIGTERM)
DaemonServer._listen = listen_and_be_stopped
raise SystemExit(main([]))
"""


def test_a_signal_stops_it_as_soon_as_it_can_be_found(home: Path) -> None:
    write_config(home)
    command = (sys.executable, "-c", ENDED_AT_ONCE)
    environment = {**os.environ, "LOCALSPEC_HOME": str(home)}
    ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=DEADLINE_S)
    assert ended.returncode == 0 and not (home / "runtime" / "daemon.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["deaf", "stall"])
async def test_neither_a_deaf_worker_nor_a_stopped_one_holds_up_a_stop(
    own: DaemonProcess, prompt: str
) -> None:
    async with raw(own) as client:
        await client.begin(1, "generate", prompt=prompt)
        (worker,) = own.workers()
        if prompt == "stall":
            worker.suspend()
            own.process.send_signal(signal.SIGTERM)
        else:
            assert "result" in await client.call(2, "daemon/shutdown")
            assert code(await client.call(3, "daemon/status")) == "shutting_down"
        assert code(await client.response(1)) == "shutting_down"
        assert await client.close_code() == 1001
    assert own.process.wait(DEADLINE_S) == 0 and gone(worker)


async def test_a_stop_that_waits_for_idleness_leaves_one_at_work_alone(own: DaemonProcess) -> None:
    async with raw(own) as client:
        await client.begin(1, "generate", prompt="stall")
        assert code(await client.call(2, "daemon/shutdown", if_idle=True)) == "engine_busy"
        assert (await client.result(3, "daemon/status"))["running"] == 1
        await client.notify("$/cancelRequest", id=1)
        await client.response(1)
        assert "result" in await client.call(4, "daemon/shutdown", if_idle=True)
        assert await client.close_code() == 1001
    assert own.process.wait(DEADLINE_S) == 0


async def test_an_answer_that_is_nearly_done_ends_before_the_daemon(own: DaemonProcess, home: Path) -> None:
    gate = home / "gate"
    os.mkfifo(gate)
    async with raw(own) as client:
        await client.begin(1, "generate", prompt=f"await {gate}")
        await client.call(2, "daemon/shutdown")
        assert code(await client.call(3, "generate", prompt="hello")) == "shutting_down"
        assert code(await client.call(4, "session/list")) == "shutting_down"
        gate.write_text("go on")
        result = (await client.response(1))["result"]
        assert (result["text"], result["finish_reason"]) == ("waiting done ", "stop")
        assert await client.close_code() == 1001
    assert own.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("flags", [(), ("--ready-fd", "1")])
def test_a_second_daemon_finds_the_first_and_exits(daemon: DaemonProcess, flags: tuple[str, ...]) -> None:
    second = subprocess.run(
        (*ECHO_DAEMON, *flags),
        env={**os.environ, "LOCALSPEC_HOME": str(daemon.home)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if flags:  # a client has started it, and finds the first one
        assert (second.returncode, second.stdout) == (ExitCode.OK, "1")
    else:
        assert second.returncode == ExitCode.UNAVAILABLE
        shown = "localspec: a daemon is already running. Run `localspec daemon stop` first.\n"
        assert second.stderr == shown
    assert daemon.process.poll() is None
    assert daemon.discovery_path.exists()


def test_a_lock_without_an_owner_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    monkeypatch.setattr("localspec.daemon.server.PATIENCE_S", 0.3)
    with FileLock(home / "runtime" / "daemon.lock"), pytest.raises(DaemonUnavailable, match="holds the lock"):
        claim()
    stale = Discovery(2**22 + 1, "0", 1, "/nowhere")
    homes.write_private(homes.discovery_path(), msgspec.json.encode(stale).decode())
    lock = claim()
    assert lock is not None
    lock.release()
    assert not (home / "runtime" / "daemon.json").exists()


@pytest.fixture
def announced(home: Path, monkeypatch: pytest.MonkeyPatch) -> Announcement:
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    announcement = Announcement()
    announcement.socket.touch()
    announcement.write()
    assert announcement.is_there()
    return announcement


def test_another_daemons_files_are_left_alone(announced: Announcement) -> None:
    text = announced.path.read_text()
    announced.path.write_text(text.replace(str(os.getpid()), "1"))
    assert not announced.is_there()
    announced.withdraw()
    assert announced.path.exists() and announced.socket.exists()
    announced.path.write_text(text)
    announced.withdraw()
    assert not announced.path.exists() and not announced.socket.exists()


def test_a_daemon_without_its_socket_is_not_the_one_that_listens(
    announced: Announcement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.daemon.server.PATIENCE_S", 0.3)
    with FileLock(homes.runtime_dir() / "daemon.lock"):
        assert claim() is None
        announced.socket.unlink()
        with pytest.raises(DaemonUnavailable, match="holds the lock"):
            claim()


@pytest.mark.parametrize("lost", ["runtime/daemon.sock", "runtime/daemon.json", "runtime"])
def test_a_daemon_that_clients_cannot_find_ends_for_its_successor(start: StartDaemon, lost: str) -> None:
    daemon = start()
    place = daemon.home / lost
    (shutil.rmtree if place.is_dir() else os.unlink)(place)
    assert start().stop() == 0
    assert daemon.process.wait(DEADLINE_S) == ExitCode.UNAVAILABLE, "a service starts it again"


def test_few_files_leave_places_for_few_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((4096, 64), (40, 16), (10, 1), (resource.RLIM_INFINITY, 64)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert most_connections(64) == most


@pytest.mark.slow
async def test_a_killed_daemon_leaves_no_worker_and_can_be_started_again(start: StartDaemon) -> None:
    first = start()
    async with raw(first) as client:
        await client.begin(1, "generate", prompt="stall")
    (worker,) = first.workers()
    first.stop(signal.SIGKILL)
    until_sync(lambda: gone(worker), "the worker is gone")
    assert first.discovery_path.exists()
    assert start().found.pid != first.found.pid


@pytest.fixture(params=["path", "abstract"])
def notices(
    home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[socket.socket]:
    """Return the socket on which a supervisor receives notices."""
    name = str(home / "notify") if request.param == "path" else f"@{home}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


@pytest.mark.slow
def test_it_tells_when_it_listens_or_one_runs_already_and_when_it_stops(
    notices: socket.socket, own: DaemonProcess
) -> None:
    assert notices.recv(100) == b"READY=1"
    environment = {**os.environ, "LOCALSPEC_HOME": str(own.home)}
    second = subprocess.run(ECHO_DAEMON, env=environment, capture_output=True)
    assert second.returncode == 0 and notices.recv(100) == b"READY=1"
    assert own.stop() == 0
    assert notices.recv(100) == b"STOPPING=1"


def test_no_supervisor_has_to_listen(start: StartDaemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(home / "nowhere"))
    assert start().stop() == 0
