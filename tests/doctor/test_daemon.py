"""Lines on a daemon that answers or does not, and on the files at its socket's place."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from filelock import FileLock

from localspec._version import __version__
from localspec.doctor import daemon
from localspec.doctor.daemon import Asked
from localspec.doctor.finding import Finding
from localspec.errors import Unauthorized, VersionSkew
from localspec.protocol.messages import DaemonStatus, Discovery, SettingsState

NOT_FOUND = Asked()
NOBODY = 2**22 + 1
"""no process has this number"""
FOUND = Discovery(NOBODY, __version__, 1, "/run/daemon.sock", "ws://127.0.0.1:1", "/token")


def answered(version: str = __version__, settings: SettingsState = "current") -> Asked:
    status = DaemonStatus(
        pid=7,
        version=version,
        protocol=1,
        uptime_s=1.0,
        socket="/run/daemon.sock",
        url=None,
        resident_bytes=None,
        connections=1,
        running=0,
        models=(),
        settings=settings,
    )
    return Asked(FOUND, status)


def test_one_that_answers_is_well() -> None:
    found = daemon.daemon(answered())
    assert found == Finding("daemon", "ok", f"The daemon runs (pid 7, localspec {__version__}).")
    assert daemon.daemon(answered(settings="broken")).level == "ok", "the file has a line of its own"
    assert daemon.daemon(Asked()) == daemon.daemon(Asked(FOUND)) == daemon.NO_DAEMON


@pytest.mark.parametrize(
    ("asked", "level", "told"),
    [
        (answered("0.0.1"), "warning", "is localspec 0.0.1, this command is"),
        (answered(settings="changed"), "warning", "other settings"),
        (Asked(FOUND, error=VersionSkew("it speaks protocol 9")), "warning", "It speaks protocol 9."),
        (Asked(FOUND, error=Unauthorized("the token is wrong")), "problem", "The token is wrong."),
    ],
)
def test_one_that_answers_otherwise(asked: Asked, level: str, told: str) -> None:
    found = daemon.daemon(asked)
    assert found.level == level and told in found.sentence
    if level == "warning":
        assert "`localspec daemon restart`" in str(found.remedy)


# The socket.


def looked_at(runtime: Path, asked: Asked = NOT_FOUND) -> Finding:
    (found,) = daemon.sockets(asked, runtime)
    assert found.name == "sockets" and (found.remedy is None) == (found.level == "ok")
    return found


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    # Short enough for a socket, whatever the tests' directory is called.
    return Path(os.path.relpath(tmp_path))


def test_nothing_or_a_daemon_is_well(runtime: Path) -> None:
    assert looked_at(runtime).sentence == f"No daemon listens; the next one listens on {runtime}/daemon.sock."
    assert looked_at(runtime, answered()).sentence.startswith("/run/daemon.sock and ws://127.0.0.1:1")


def test_a_path_that_is_too_long_is_told() -> None:
    found = looked_at(Path("/run/" + 100 * "é"))
    assert found.level == "warning" and "has 217 bytes" in found.sentence and "103" in found.sentence
    assert "LOCALSPEC_HOME" in str(found.remedy)


def test_what_a_killed_daemon_left_is_told(runtime: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / "daemon.sock"))
    (runtime / "daemon.json").touch()
    found = looked_at(runtime, Asked(FOUND))
    assert found.level == "warning" and "daemon.sock and" in found.sentence
    assert "`localspec daemon start`" in str(found.remedy)


def test_a_lock_that_is_held_by_what_does_not_listen_is_a_problem(runtime: Path) -> None:
    lock = runtime / "daemon.lock"
    lock.touch()  # of a daemon that has ended
    assert looked_at(runtime).level == "ok"
    with FileLock(lock):
        found = looked_at(runtime)
        assert found.level == "problem" and f"fuser -k {lock}" in str(found.remedy)
        assert looked_at(runtime, answered()).level == "ok"


def test_a_directory_in_its_place_is_a_problem(runtime: Path) -> None:
    (runtime / "daemon.sock").mkdir()
    found = looked_at(runtime)
    assert found.level == "problem" and f"rm -r {runtime}/daemon.sock" in str(found.remedy)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="nothing can be given to another user")
def test_another_users_socket_is_a_problem(runtime: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / "daemon.sock"))
    os.chown(runtime / "daemon.sock", 65534, 65534)
    found = looked_at(runtime)
    assert found.level == "problem" and "another user" in found.sentence
