"""The service's life with stand-ins for systemctl and launchctl, which note their calls; its ExecStart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from localspec.client.discovery import Starter
from localspec.protocol.messages import Discovery
from localspec.service.service import MANAGERS, Launchd, Systemd, daemon_job, unit
from tests.cli.harness import LONG, Cli
from tests.folders import short_folder
from tests.service.test_units import words
from tests.waiting import DEADLINE_S, until_sync

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {home}/calls
case "$*" in
*"show localspec.service "*) cat {home}/shown;;
*reset-failed*) exit 1;;
esac
"""
"""answers with success, except for a unit that never failed"""
LAUNCHCTL = """#!/bin/sh
test "$1" = print || echo "$*" >> {home}/calls
case "$1 $2" in
bootstrap*) touch {home}/loaded;;
bootout*) rm {home}/loaded 2>/dev/null || exit 3;;
print*localspec.daemon) test -e {home}/loaded || exit 113; printf '\\tstate = running\\n\\tpid = 7\\n';;
esac
"""
"""knows whether the agent is loaded; its exit codes are the real one's"""
RUNS = "ActiveState=active\nSubState=running\nResult=success\nMainPID=7\n"
FAILED = "ActiveState=failed\nSubState=failed\nResult=exit-code\nMainPID=0\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


def stand_in(folder: Path, name: str, text: str) -> Cli:
    """A command of a user whose service manager is this program."""
    cli = Cli(folder)
    program = folder / name
    program.write_text(text.format(home=folder))
    program.chmod(0o755)
    cli.environment |= {"HOME": str(folder), "PATH": f"{folder}:{cli.environment['PATH']}"}
    cli.environment.pop("XDG_CONFIG_HOME", None)
    return cli


@pytest.fixture
def linux(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setitem(MANAGERS, sys.platform, Systemd)
    (folder / "shown").write_text(RUNS)
    return stand_in(folder, "systemctl", SYSTEMCTL)


@pytest.fixture
def mac(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command that takes this machine for a Mac."""
    monkeypatch.setitem(MANAGERS, sys.platform, Launchd)
    return stand_in(folder, "launchctl", LAUNCHCTL)


def calls(cli: Cli) -> list[str]:
    """The calls since the last time that do more than show."""
    lines = (cli.home / "calls").read_text().splitlines()
    (cli.home / "calls").write_text("")
    return [line.removeprefix("--user ") for line in lines if "show" not in line]


def test_a_unit_is_written_enabled_and_started(linux: Cli) -> None:
    facts = linux.json("service", "install")
    file = linux.home / ".config" / "systemd" / "user" / "localspec.service"
    assert facts["file"] == str(file) and facts["installed"] and facts["current"]
    assert (facts["pid"], facts["state"], facts["left_alone"]) == (7, "active (running)", False)
    job = daemon_job(linux.environment)
    assert file.read_text() == unit(job)
    names = ("daemon-reload", "enable", "reset-failed", "restart")
    assert [call.split()[0] for call in calls(linux)] == list(names)
    starter = msgspec.json.decode((linux.home / "state" / "service.json").read_bytes(), type=Starter)
    assert starter.content == file.read_text()
    assert starter.start == ("systemctl", "--user", "start", "localspec.service")


def test_a_unit_is_stopped_and_removed(linux: Cli) -> None:
    file = Path(linux.json("service", "install")["file"])
    calls(linux)
    assert linux.json("service", "uninstall") == {"removed": True, "file": str(file)}
    assert calls(linux) == ["disable --now localspec.service", "daemon-reload"]
    assert not file.exists() and not (linux.home / "state" / "service.json").exists()
    assert linux.json("service", "uninstall")["removed"] is False and calls(linux) == []
    assert "No service is installed" in linux("service", "status").stdout


def test_a_unit_that_systemd_gave_up_says_so(linux: Cli) -> None:
    linux("service", "install")
    (linux.home / "shown").write_text(FAILED)
    found = linux("service", "status")
    assert found.returncode == 69 and "it failed, see `localspec daemon logs`" in found.stderr
    assert "systemd: not running, failed (failed), last ended with exit-code\n" in found.stdout
    assert json.loads(linux("service", "status", "--json").stdout)["pid"] is None


def test_an_agent_is_loaded_anew_unloaded_and_removed(mac: Cli) -> None:
    facts = mac.json("service", "install")
    file = mac.home / "Library" / "LaunchAgents" / "localspec.daemon.plist"
    assert (facts["file"], facts["manager"]) == (str(file), "launchd")
    assert (facts["pid"], facts["state"], facts["current"]) == (7, "running", True)
    assert mac.json("service", "install")["current"]
    assert [call.split()[0] for call in calls(mac)] == 2 * ["enable", "bootout", "bootstrap"]
    starter = msgspec.json.decode((mac.home / "state" / "service.json").read_bytes(), type=Starter)
    assert starter.start[:2] == ("launchctl", "kickstart")
    assert mac("service", "uninstall").stdout == f"Removed {file}.\n" and not file.exists()
    assert json.loads(mac("service", "status", "--json").stdout)["state"] == "not loaded"


def test_another_environment_is_another_agent(mac: Cli) -> None:
    assert mac.json("service", "install")["current"]
    mac.environment["HF_HOME"] = str(mac.home / "hub")
    assert "is not up to date" in mac("service", "status").stderr
    assert mac.json("service", "status")["current"] is False
    assert mac.json("service", "install")["current"]


def test_the_service_of_another_home_is_left_alone(mac: Cli, tmp_path: Path) -> None:
    assert mac.json("service", "install")["other_home"] is False
    other = Cli(tmp_path / "a b")
    other.environment |= {name: mac.environment[name] for name in ("HOME", "PATH")}
    calls(mac)
    for command in ("uninstall", "install"):
        error = json.loads(other("service", command, "--json").stdout)["error"]
        assert error["code"] == "service_unavailable"
        assert "another LOCALSPEC_HOME" in error["message"] and "service uninstall" in error["remedy"]
    done = other("service", "status")
    assert done.returncode == 69 and "belongs to another home" in done.stderr
    assert calls(mac) == []


@pytest.mark.slow
def test_a_daemon_at_work_is_left_alone(mac: Cli) -> None:
    process = mac.begin(*LONG)
    try:
        done = mac("service", "install")
        assert done.returncode == 0 and "was not replaced" in done.stderr
        assert [call.split()[0] for call in calls(mac)] == ["enable"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert not mac.json("service", "install")["left_alone"]


def test_a_file_that_cannot_be_written_is_an_error(mac: Cli) -> None:
    (mac.home / "Library").touch()
    done = mac("service", "install", "--json")
    message = json.loads(done.stdout)["error"]["message"]
    assert done.returncode == 69 and "LaunchAgents" in message and "cannot be written" in message


def test_a_manager_that_refuses_is_quoted(mac: Cli) -> None:
    refusing = 'case "$*" in enable*) echo "Not so" >&2; exit 3;; print*localspec*) exit 113;; esac'
    (mac.home / "launchctl").write_text(f"#!/bin/sh\n{refusing}\n")
    error = json.loads(mac("service", "install", "--json").stdout)["error"]
    assert error["message"].endswith("failed: Not so") and "launchctl enable" in error["message"]


@pytest.fixture
def without(folder: Path) -> Cli:
    """A command of a user without a service manager."""
    cli = Cli(folder / "without")
    (folder / "empty").mkdir(exist_ok=True)
    cli.environment |= {"XDG_RUNTIME_DIR": str(folder / "empty"), "HOME": str(folder / "without")}
    cli.environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
    return cli


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
@pytest.mark.parametrize("programs", [True, False], ids=["silent", "not installed"])
def test_without_a_manager_the_error_has_a_remedy(without: Cli, command: str, programs: bool) -> None:
    if not programs:
        without.environment["PATH"] = "/nonexistent"
    done = without("service", command, "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 69 and error["code"] == "service_unavailable"
    assert "does not answer" in error["message"]
    assert "every command that needs it starts it" in error["remedy"]
    assert not list(without.home.rglob("*.service"))


@pytest.mark.slow
def test_its_exec_start_runs_and_ends_cleanly(folder: Path) -> None:
    """Do by hand as systemd does with the unit: start it, wait until it is ready, and end it."""
    home = Cli(folder / "e 50% $HOME é").home
    text = unit(daemon_job({**os.environ, "LOCALSPEC_HOME": str(home)}))
    (start,) = re.findall(r"^ExecStart=:(.*)$", text, re.M)
    environment = dict(words(line)[0].split("=", 1) for line in re.findall("^Environment=(.*)$", text, re.M))
    assert environment["LOCALSPEC_HOME"] == str(home)
    process = subprocess.Popen(
        words(start), env={"PATH": os.environ["PATH"], **environment}, cwd="/", stdin=subprocess.DEVNULL
    )
    announcement = home / "runtime" / "daemon.json"
    until_sync(announcement.exists, "the daemon listens")
    assert msgspec.json.decode(announcement.read_bytes(), type=Discovery).pid == process.pid
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert not announcement.exists() and (home / "state" / "daemon.log").read_text().endswith("stopped\n")
