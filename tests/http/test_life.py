"""The HTTP server in the daemon: opened with it, or with a reason why not, and ended with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.client import connect
from localspec.config import Config
from localspec.daemon.daemon import Daemon
from localspec.errors import DaemonUnavailable
from localspec.http.server import serve_http
from tests.client.conftest import own_home
from tests.daemon.harness import ECHO_DAEMON, DaemonProcess, write_config
from tests.http.server import _status, opened, server_of
from tests.waiting import DEADLINE_S, run, until_sync


def read(connection: socket.socket) -> bytes:
    said = b""
    while chunk := connection.recv(1 << 16):
        said += chunk
    return said


@pytest.mark.slow
def test_it_is_open_in_the_daemon_that_replaces_one_with_the_flag() -> None:
    section = "[http]\nport = 0\n"
    with own_home() as path:
        old = DaemonProcess(path, command=(*ECHO_DAEMON, "--http"), sections=section)
        server_of(old, path)
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


def test_without_the_setting_there_is_no_server_and_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    code = "import sys, localspec.daemon.__main__; print(*sys.modules)"
    loaded = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True).stdout.split()
    assert "localspec.http.server" in loaded and not {"starlette", "uvicorn", "h11"}.intersection(loaded)
    with own_home() as path:
        daemon = DaemonProcess(path)
        assert run(_status(daemon)).http is None
        assert daemon.stop() == 0


def test_a_port_that_others_have_is_named_and_the_daemon_goes_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, own_home() as path:
        port = taken.getsockname()[1]
        daemon = DaemonProcess(path, sections=f"[http]\nenabled = true\nport = {port}\n")
        status = run(_status(daemon))
        assert status.http is None and status.http_problem == f"port {port} is used by another program"
        assert f"{status.http_problem}. {status.http_remedy}" in daemon.log()
        assert daemon.stop() == 0


async def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(DaemonUnavailable, match="the HTTP server lacks uvicorn") as raised:
        async with serve_http(Config(), Daemon(Config())):
            pass
    assert raised.value.remedy.startswith("Install it") and "[http]" in raised.value.remedy


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
    assert f"localspec: port {port} is used by another program. {step}\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_answers_that_the_end_of_the_daemon_cuts_short_are_not_whole(number: signal.Signals) -> None:
    body = {"prompt": "stall"}
    with opened() as http, http.sent("/completion", body | {"stream": True}) as streams:
        with http.sent("/completion", body) as whole:
            until_sync(lambda: http.running() == 2, "both are at work")
            http.daemon.process.send_signal(number)
            seen = b"the daemon was stopped before the answer was complete. Try again in a moment."
            said, refused = read(streams), read(whole)
            assert said.startswith(b"HTTP/1.1 200") and b"stalling" in said and seen in said
            assert refused.startswith(b"HTTP/1.1 503") and seen in refused
            assert b'"stop":true' not in said + refused
        assert http.daemon.process.wait(DEADLINE_S) == 0
        assert "Traceback" not in http.daemon.log()
