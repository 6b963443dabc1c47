"""The unit's life with a stand-in for systemctl, which notes its calls; its ExecStart as a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from localspec.client.discovery import Starter
from localspec.protocol.messages import Discovery
from localspec.service.service import MANAGERS, Systemd, daemon_job, unit
from tests.cli.harness import Cli
from tests.service.jobs import words
from tests.waiting import DEADLINE_S, until_sync

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {home}/calls
case "$*" in
*"show localspec.service "*) cat {home}/shown;;
*reset-failed*) exit 1;;
esac
"""
"""answers with success, except for a unit that never failed"""
RUNS = "ActiveState=active\nSubState=running\nResult=success\nMainPID=7\n"
FAILED = "ActiveState=failed\nSubState=failed\nResult=exit-code\nMainPID=0\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def linux(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command of a user with the stand-in."""
    monkeypatch.setitem(MANAGERS, sys.platform, Systemd)
    cli = Cli(folder)
    program = folder / "systemctl"
    program.write_text(SYSTEMCTL.format(home=folder))
    program.chmod(0o755)
    (folder / "shown").write_text(RUNS)
    cli.environment |= {"HOME": str(folder), "PATH": f"{folder}:{cli.environment['PATH']}"}
    cli.environment.pop("XDG_CONFIG_HOME", None)
    return cli


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
    assert found.returncode == 69
    assert "systemd: not running, failed (failed), last ended with exit-code\n" in found.stdout
    assert json.loads(linux("service", "status", "--json").stdout)["pid"] is None


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
