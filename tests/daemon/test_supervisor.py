"""The daemon's notices to the systemd that started it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import ECHO_DAEMON
from tests.waiting import DEADLINE_S


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
    notices: socket.socket, start: StartDaemon
) -> None:
    daemon = start()
    assert notices.recv(100) == b"READY=1"
    environment = {**os.environ, "LOCALSPEC_HOME": str(daemon.home)}
    second = subprocess.run(ECHO_DAEMON, env=environment, capture_output=True)
    assert second.returncode == 0 and notices.recv(100) == b"READY=1"
    assert daemon.stop() == 0
    assert notices.recv(100) == b"STOPPING=1"


def test_nobody_has_to_listen(start: StartDaemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(home / "nobody"))
    assert start().stop() == 0
