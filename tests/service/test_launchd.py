"""The agent's life with a stand-in for launchctl, which runs real daemons."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.service.service import MANAGERS, Launchd
from tests.cli.harness import LONG, Cli
from tests.waiting import DEADLINE_S, until_sync

LAUNCHCTL = Path(__file__).with_name("launchctl.py")


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A command that takes this machine for a Mac."""
    monkeypatch.setitem(MANAGERS, sys.platform, Launchd)
    cli = Cli(Path(tempfile.mkdtemp(prefix="ls")).resolve())
    program = cli.home / "launchctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {LAUNCHCTL} "$@"\n')
    program.chmod(0o755)
    cli.environment |= {"HOME": str(cli.home), "PATH": f"{cli.home}:{cli.environment['PATH']}"}
    yield cli
    cli("service", "uninstall")
    cli("daemon", "stop")
    shutil.rmtree(cli.home, ignore_errors=True)


def status(cli: Cli) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("service", "status", "--json").stdout)
    return found


def listens(cli: Cli) -> dict[str, Any]:
    """The service's facts once its daemon can be found."""
    until_sync(lambda: status(cli)["daemon_pid"] is not None, "the daemon listens")
    return status(cli)


@pytest.mark.slow
def test_an_agent_is_loaded_and_is_the_daemon(mac: Cli) -> None:
    facts = mac.json("service", "install")
    agents = mac.home / "Library" / "LaunchAgents"
    assert facts["file"] == str(agents / "localspec.daemon.plist") and facts["manager"] == "launchd"
    found = listens(mac)
    assert found["pid"] == found["daemon_pid"] == mac.status()["pid"] and found["state"] == "running"
    assert mac.json("service", "install")["current"]
    again = listens(mac)
    assert again["pid"] == again["daemon_pid"] != found["pid"]


@pytest.mark.slow
def test_a_stopped_one_is_started_by_the_agent(mac: Cli) -> None:
    mac.json("service", "install")
    first = listens(mac)["pid"]
    mac("daemon", "stop")
    until_sync(lambda: not psutil.pid_exists(first), "it has ended")
    assert mac("service", "status").returncode == 69
    assert mac("daemon", "start").returncode == 0
    second = status(mac)
    assert second["pid"] == second["daemon_pid"] != first


@pytest.mark.slow
def test_it_is_unloaded_and_removed(mac: Cli) -> None:
    facts = mac.json("service", "install")
    listens(mac)
    assert mac.json("service", "uninstall")["removed"]
    assert not Path(facts["file"]).exists() and status(mac)["state"] == "not loaded"


@pytest.mark.slow
def test_the_service_of_another_home_is_left_alone(mac: Cli, tmp_path: Path) -> None:
    mac.json("service", "install")
    first = listens(mac)
    assert first["other_home"] is None
    other = Cli(tmp_path / "a b")
    other.environment |= {name: mac.environment[name] for name in ("HOME", "PATH")}
    try:
        for command in ("uninstall", "install"):
            error = json.loads(other("service", command, "--json").stdout)["error"]
            assert error["code"] == "service_unavailable" and str(mac.home) in error["message"]
            assert str(other.home) in error["message"] and "service uninstall" in error["remedy"]
        done = other("service", "status")
        assert done.returncode == 69 and f"another home: LOCALSPEC_HOME={mac.home}." in done.stderr
        assert status(mac)["pid"] == first["pid"] and psutil.pid_exists(first["pid"])
    finally:
        other("daemon", "stop")


@pytest.mark.slow
def test_a_daemon_at_work_is_left_alone(mac: Cli) -> None:
    mac.json("service", "install")
    first = listens(mac)["pid"]
    process = mac.begin(*LONG)
    try:
        mac.environment["HF_HOME"] = str(mac.home / "hub")
        done = mac("service", "install")
        assert done.returncode == 0 and "was not replaced" in done.stderr
        assert status(mac)["pid"] == first and psutil.pid_exists(first)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert not mac.json("service", "install")["left_alone"]
    second = listens(mac)["pid"]
    assert second != first and "HF_HOME" in psutil.Process(second).environ()


def test_a_file_that_cannot_be_written_is_an_error(mac: Cli) -> None:
    (mac.home / "Library").touch()
    done = mac("service", "install", "--json")
    error = json.loads(done.stdout)["error"]
    assert (
        done.returncode == 69
        and "LaunchAgents" in error["message"]
        and "cannot be written" in error["message"]
    )


def test_a_manager_that_refuses_is_quoted(mac: Cli) -> None:
    refusing = 'case "$*" in enable*) echo "Not so" >&2; exit 3;; print*localspec*) exit 113;; esac'
    (mac.home / "launchctl").write_text(f"#!/bin/sh\n{refusing}\n")
    error = json.loads(mac("service", "install", "--json").stdout)["error"]
    assert error["message"].endswith("failed: Not so") and "launchctl enable" in error["message"]
