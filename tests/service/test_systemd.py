"""The service under a real systemd of a user's, where one can run; its ExecStart as a process everywhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from localspec.client import discovery
from localspec.protocol.messages import Discovery
from localspec.service.job import daemon_job
from localspec.service.systemd import unit
from tests.cli.harness import LONG, Cli
from tests.daemon.harness import gone
from tests.service.jobs import words
from tests.service.user_systemd import CannotRun, user_systemd
from tests.waiting import DEADLINE_S, until_sync

NEWER = """
import asyncio
import localspec.client.client as client
client.__version__ = "99.0.0"
async def main():
    async with await client.connect() as connected:
        print((await connected.status()).pid)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def person(folder: Path) -> Iterator[Cli]:
    """A command of a user with a systemd and a home with an odd name."""
    with contextlib.ExitStack() as stack:
        try:
            environment = stack.enter_context(user_systemd(folder))
        except CannotRun as error:
            pytest.skip(f"no user systemd can run here: {error}")
        cli = Cli(folder / 'h "%h"')
        for name in [name for name in cli.environment if name.startswith("XDG_")]:
            del cli.environment[name]
        cli.environment |= environment
        yield cli
        cli("service", "uninstall")
        cli("daemon", "stop")


def status(cli: Cli) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("service", "status", "--json").stdout)
    return found


def installed(cli: Cli) -> dict[str, Any]:
    """The service's facts once it is installed and is the daemon."""
    cli.json("service", "install")
    found = status(cli)
    assert found["installed"] and found["current"] and found["pid"] == found["daemon_pid"], found
    return found


@pytest.mark.slow
def test_it_runs_the_daemon_that_clients_find(person: Cli) -> None:
    said = person("service", "install")
    assert said.returncode == 0 and said.stdout.startswith("Installed: "), said
    found = installed(person)
    assert person.status()["pid"] == found["pid"]
    assert psutil.Process(found["pid"]).ppid() != os.getpid()
    assert os.path.samefile(found["log"], person.home / "state" / "daemon.log")
    assert "listens on" in person("service", "logs").stdout
    assert person("service", "status").returncode == 0


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong_with_it(person: Cli) -> None:
    installed(person)
    found = json.loads(person("doctor", "--json").stdout)["findings"]
    (told,) = (each for each in found if each["name"] == "service")
    assert told["level"] == "ok" and "now it is active (running)" in told["sentence"]
    command = ("systemctl", "--user", "disable", "localspec.service")
    subprocess.run(command, env=person.environment, check=True, capture_output=True)
    found = json.loads(person("doctor", "--json").stdout)["findings"]
    (told,) = (each for each in found if each["name"] == "service")
    assert told["level"] == "warning" and "`localspec service install`" in told["remedy"]


@pytest.mark.slow
def test_it_starts_at_login(person: Cli) -> None:
    installed(person)
    command = ("systemctl", "--user", "is-enabled", "localspec.service")
    assert subprocess.run(command, env=person.environment, capture_output=True).stdout == b"enabled\n"


@pytest.mark.slow
def test_installing_again_changes_nothing(person: Cli) -> None:
    first = installed(person)
    again = person.json("service", "install")
    assert not again["changed"] and again["pid"] == first["pid"]
    assert "Already installed" in person("service", "install").stdout


@pytest.mark.slow
def test_a_stop_is_no_crash_and_a_client_starts_it_again(person: Cli) -> None:
    first = installed(person)
    assert person("daemon", "stop").returncode == 0
    until_sync(lambda: status(person)["state"] == "inactive (dead)", "the service has ended")
    assert person("service", "status").returncode == 69
    assert person("daemon", "start").returncode == 0
    second = status(person)
    assert second["pid"] == second["daemon_pid"] != first["pid"]


@pytest.mark.slow
def test_a_crash_starts_it_again(person: Cli) -> None:
    first = installed(person)
    os.kill(first["pid"], signal.SIGKILL)
    until_sync(lambda: status(person)["daemon_pid"] not in (None, first["pid"]), "there is another daemon")
    second = status(person)
    assert second["pid"] == second["daemon_pid"]


@pytest.mark.slow
def test_a_broken_configuration_is_no_reason_to_try_for_ever(person: Cli) -> None:
    first = installed(person)
    config = person.home / "config" / "config.toml"
    good = config.read_text()
    config.write_text("[daemon]\nprt = 1\n")
    try:
        os.kill(first["pid"], signal.SIGKILL)
        until_sync(lambda: status(person)["state"].startswith("failed"), "systemd has given up")
        refused = person("service", "install")
        assert refused.returncode == 2 and "daemon.prt" in refused.stderr
    finally:
        config.write_text(good)
    assert installed(person)["pid"] != first["pid"]


@pytest.mark.slow
def test_a_newer_client_replaces_an_idle_daemon_by_the_service(person: Cli) -> None:
    first = installed(person)
    done = subprocess.run(
        (sys.executable, "-c", NEWER), env=person.environment, capture_output=True, text=True, check=True
    )
    second = status(person)
    assert int(done.stdout) == second["pid"] == second["daemon_pid"] != first["pid"]


@pytest.mark.slow
def test_a_client_of_another_environment_starts_its_own_daemon(person: Cli) -> None:
    installed(person)
    person("daemon", "stop")
    starter = person.home / "state" / "service.json"
    found = msgspec.json.decode(starter.read_bytes(), type=discovery.Starter)
    starter.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, prefix="/another")))
    assert person("daemon", "start").returncode == 0
    told = person("service", "status")
    assert told.returncode == 69 and "was started by a command" in told.stderr
    # And that is the one daemon until the service may take its place.
    pid = status(person)["daemon_pid"]
    found_again = installed(person)
    assert found_again["pid"] != pid and not psutil.pid_exists(pid)


@pytest.mark.slow
def test_a_daemon_at_work_is_left_alone(person: Cli) -> None:
    first = installed(person)
    process = person.begin(*LONG)
    try:
        person.environment["HF_HOME"] = str(person.home / "hub")
        assert "`localspec service install` updates it" in person("service", "status").stderr
        told = person("service", "install")
        assert told.returncode == 0 and "left alone" in told.stderr
        assert status(person)["pid"] == first["pid"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    after = installed(person)
    assert after["pid"] != first["pid"]
    assert psutil.Process(after["pid"]).environ()["HF_HOME"] == person.environment.pop("HF_HOME")


@pytest.mark.slow
def test_the_service_of_another_home_is_left_alone(person: Cli, folder: Path) -> None:
    first = installed(person)
    other = Cli(folder / "other")
    other.environment = {**person.environment, "LOCALSPEC_HOME": str(other.home)}
    for command in ("uninstall", "install"):
        error = json.loads(other("service", command, "--json").stdout)["error"]
        assert str(person.home) in error["message"] and "localspec service uninstall" in error["remedy"]
    assert status(person)["pid"] == first["pid"]
    # The command that it names does what was asked for: the name of that home is a strange one.
    words = error["remedy"].split("`")[1].replace(" localspec ", f" {sys.executable} -m localspec ")
    subprocess.run(words, shell=True, env=other.environment, check=True, stdout=subprocess.DEVNULL)
    assert not status(person)["installed"]


@pytest.mark.slow
def test_where_the_socket_is_is_carried(person: Cli, folder: Path) -> None:
    """Set by hand, a runtime directory can be another than the manager's own: clients look there."""
    by_hand = folder / "by hand"
    by_hand.mkdir(mode=0o700)
    (by_hand / "systemd").symlink_to(folder / "run" / "systemd")
    default = Cli(folder / "unused")
    default.environment = {**person.environment, "XDG_RUNTIME_DIR": str(by_hand)}
    del default.environment["LOCALSPEC_HOME"]
    try:
        installed(default)
        assert Path(default.status()["socket"]).is_relative_to(by_hand)
    finally:
        assert default("service", "uninstall").returncode == 0


@pytest.mark.slow
def test_it_is_removed_whole(person: Cli) -> None:
    found = installed(person)
    daemon = psutil.Process(found["pid"])
    assert person.json("service", "uninstall") == {"removed": True, "file": found["file"]}
    assert gone(daemon) and not Path(found["file"]).exists()
    assert not (person.home / "state" / "service.json").exists()
    assert person.json("service", "uninstall")["removed"] is False
    assert "No service is installed" in person("service", "status").stdout


# Everywhere.


@pytest.fixture
def nobody(folder: Path) -> Cli:
    """A command of a user without a service manager."""
    cli = Cli(folder / "nobody")
    (folder / "empty").mkdir(exist_ok=True)
    cli.environment |= {"XDG_RUNTIME_DIR": str(folder / "empty"), "HOME": str(folder / "nobody")}
    cli.environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
    return cli


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
@pytest.mark.parametrize("programs", [True, False], ids=["silent", "not installed"])
def test_without_a_manager_the_remedy_is_told(nobody: Cli, command: str, programs: bool) -> None:
    if not programs:
        nobody.environment["PATH"] = "/nonexistent"
    done = nobody("service", command, "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 69 and error["code"] == "service_unavailable"
    assert (
        "does not answer" in error["message"] and "every command that needs it starts it" in error["remedy"]
    )
    assert not list(nobody.home.rglob("*.service"))


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
