"""The HTTP server's process: started with the daemon, again when it was killed, ended with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from localspec import home
from localspec.client import connect
from localspec.daemon import http_server
from tests.client.conftest import own_home
from tests.daemon.harness import ECHO_DAEMON, DaemonProcess, gone, write_config
from tests.http.server import SECTION, HttpServer, _status, door_of, opened
from tests.waiting import DEADLINE_S, run, until, until_sync


def process_of(door: HttpServer) -> psutil.Process:
    (process,) = [each for each in door.daemon.workers() if "localspec.http" in each.cmdline()]
    return process


def read(connection: socket.socket) -> bytes:
    """All that comes until it is closed."""
    said = b""
    while chunk := connection.recv(1 << 16):
        said += chunk
    return said


def test_without_the_setting_there_is_no_door() -> None:
    with own_home() as path:
        daemon = DaemonProcess(path)
        assert not [each for each in daemon.workers() if "localspec.http" in each.cmdline()]
        assert daemon.stop() == 0


@pytest.mark.slow
def test_a_flag_opens_it_without_the_setting() -> None:
    with own_home() as path:
        daemon = DaemonProcess(path, command=(*ECHO_DAEMON, "--http"), sections="[http]\nport = 0\n")
        door = door_of(daemon, path)
        assert door.ask("GET", "/health").status_code == 200
        assert daemon.stop() == 0


@pytest.mark.slow
def test_it_is_open_in_the_daemon_that_replaces_one_with_the_flag() -> None:
    section = "[http]\nport = 0\n"
    with own_home() as path:
        old = DaemonProcess(path, command=(*ECHO_DAEMON, "--http"), sections=section)
        door_of(old, path)
        write_config(path, sections=section, max_queued=100)

        async def replaced() -> str | None:
            async with await connect(command=tuple(ECHO_DAEMON)) as client:
                while (status := await client.status()).http is None:
                    await asyncio.sleep(0)
                assert status.pid != old.process.pid
                await client.shutdown()
            return status.http

        assert run(asyncio.wait_for(replaced(), DEADLINE_S)) is not None
        assert old.stop() == 0


@pytest.mark.slow
def test_it_ends_with_the_daemon() -> None:
    with opened() as door:
        process = process_of(door)
        assert door.daemon.stop() == 0
        assert gone(process)
        door.daemon.process.returncode = 0


@pytest.mark.slow
def test_it_ends_with_a_daemon_that_was_killed() -> None:
    with own_home() as path:
        daemon = DaemonProcess(path, sections=SECTION)
        process = process_of(door_of(daemon, path))
        daemon.stop(signal.SIGKILL)
        until_sync(lambda: gone(process), "the door is closed")


@pytest.mark.slow
def test_one_that_was_killed_is_opened_again_and_nobody_else_notices() -> None:
    with opened() as door:
        before = process_of(door)
        before.kill()
        until_sync(lambda: gone(before), "it is dead")
        # The daemon notices the end after the test does: until then it names the old address.
        ended = "the HTTP server ended (-9); it is restarted in 1 s"
        until_sync(lambda: ended in door.daemon.log(), "the daemon has noticed")
        again = door_of(door.daemon, door.daemon.home)
        assert again.token == door.token and process_of(again).pid != before.pid
        assert again.ask("GET", "/health").status_code == 200


@pytest.mark.slow
def test_a_port_that_others_have_is_named_and_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, own_home() as path:
        port = taken.getsockname()[1]
        daemon = DaemonProcess(path, sections=f"[http]\nenabled = true\nport = {port}\n")
        sentence = f"port {port} is used by another program"
        until_sync(lambda: sentence in daemon.log(), "it is told")
        until_sync(lambda: sentence in str(run(_status(daemon)).http_problem), "whoever asks is told, too")
        taken.close()
        assert door_of(daemon, path).port == port
        assert run(_status(daemon)).http_problem is None
        assert daemon.stop() == 0


def test_a_flag_ends_the_daemon_if_others_have_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, own_home() as path:
        port = taken.getsockname()[1]
        write_config(path, sections=f"[http]\nport = {port}\n")
        done = subprocess.run(
            (*ECHO_DAEMON, "--http"),
            env={**os.environ, "LOCALSPEC_HOME": str(path)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    step = "Run `localspec config set http.port N` (0: any free port), then `localspec daemon run --http`."
    assert done.returncode == 69
    assert f"\nlocalspec: port {port} is used by another program. {step}\n" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_program_that_is_not_there_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "COMMAND", ("/nowhere/python",))
    monkeypatch.setattr(http_server, "PAUSES_S", (0,))
    opening = asyncio.create_task(http_server.HttpServer().run())
    await until(lambda: caplog.text.count("the HTTP server cannot be started") > 1, "it is told twice")
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()


def test_what_is_not_installed_is_named_and_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "starlette").mkdir()
    (tmp_path / "starlette" / "__init__.py").write_text("raise ImportError(name='starlette')")
    done = subprocess.run(
        (sys.executable, "-m", "localspec.http"),
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    error = json.loads(done.stdout)
    assert done.returncode == 69 and error["message"] == "the HTTP server lacks starlette"
    assert error["remedy"].startswith("Install it") and "[http]" in error["remedy"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_answers_that_the_end_of_the_daemon_cuts_short_are_not_told_as_whole(number: signal.Signals) -> None:
    body = {"prompt": "stall"}
    with opened() as door, door.sent("/completion", body | {"stream": True}) as streams:
        with door.sent("/completion", body) as whole:
            until_sync(lambda: door.running() == 2, "both are at work")
            process = process_of(door)
            door.daemon.process.send_signal(number)
            told = b"the daemon was stopped before the answer was complete. Try again in a moment."
            said, refused = read(streams), read(whole)
            assert said.startswith(b"HTTP/1.1 200") and b"stalling" in said and told in said
            assert refused.startswith(b"HTTP/1.1 503") and told in refused
            assert b'"stop":true' not in said + refused
        until_sync(lambda: gone(process), "the door is closed")
        assert "Traceback" not in door.daemon.log()


@pytest.mark.slow
def test_a_flag_that_cannot_be_heeded_is_an_error() -> None:
    with opened() as door:
        done = subprocess.run(
            (sys.executable, "-m", "localspec.daemon", "--http"),
            env={**os.environ, "LOCALSPEC_HOME": str(door.daemon.home)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 69 and "Run `localspec daemon stop` first." in done.stderr


@pytest.mark.slow
def test_its_token_is_for_this_user_alone() -> None:
    with opened() as door:
        (path,) = door.daemon.home.rglob("http-token")
        assert path.stat().st_mode & 0o077 == 0 and path.read_text().strip() == door.token


def test_a_daemon_replaces_one_with_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    home.runtime_dir().mkdir(parents=True, exist_ok=True)
    (home.runtime_dir() / "http-server").touch()
    assert http_server.was_left_open() and not http_server.was_left_open()
