"""``localspec doctor`` as people call it: on a healthy machine, and where something is broken."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from localspec._version import __version__
from tests.cli.harness import Cli, ended
from tests.folders import short_folder
from tests.waiting import DEADLINE_S

CHECKS = ["python", "llama_cpp", "mlx", "config", "model", "pairing", "memory", "daemon", "http", "disk"]
OF_THE_MACHINE = {"memory", "disk"}
"""may be short on any machine"""
LEVELS = ("ok", "warning", "problem")
MLX = "ok" if find_spec("mlx_lm") is not None else "warning"


@pytest.fixture
def cli() -> Iterator[Cli]:
    """A command of a user without other programs' models, in a home of its own."""
    with short_folder() as home:
        command = Cli(home / "home")
        command.environment["HOME"] = str(home)
        for name in [name for name in command.environment if name.startswith(("HF_", "XDG_", "OLLAMA_"))]:
            del command.environment[name]
        yield command
        command("daemon", "stop")


def examined(cli: Cli, *, code: int = 0) -> dict[str, dict[str, Any]]:
    """The findings by name, the worst of each name; all of them are well-formed."""
    done = cli("doctor", "--json")
    assert (done.returncode, done.stderr) == (code, ""), done.stdout
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    findings: list[dict[str, Any]] = found["findings"]
    for each in findings:
        assert set(each) == {"name", "level", "sentence", "remedy"}
        assert each["sentence"][-1] in ".?" and "Traceback" not in each["sentence"]
        assert (each["level"] == "ok") == (each["remedy"] is None)
    assert found["ok"] == (code == 0) == all(each["level"] != "problem" for each in findings)
    return {each["name"]: each for each in sorted(findings, key=lambda each: LEVELS.index(each["level"]))}


@pytest.mark.slow
def test_a_healthy_machine(cli: Cli) -> None:
    """Without the default model, which is to be downloaded."""
    found = examined(cli)
    assert sorted(found) == sorted(CHECKS)
    levels = dict.fromkeys(CHECKS, "ok") | {"mlx": MLX, "model": "warning"}
    assert {name: found[name]["level"] for name in levels if name not in OF_THE_MACHINE} == {
        name: level for name, level in levels.items() if name not in OF_THE_MACHINE
    }
    assert __version__ in found["python"]["sentence"]
    assert found["llama_cpp"]["sentence"].startswith("llama-cpp-python ")
    assert found["daemon"]["sentence"].startswith("No daemon runs")
    assert f"free for {cli.home}/data" in found["disk"]["sentence"]
    assert found["pairing"]["sentence"].startswith("stdlib-1m drafts for stdlib-6m, chosen by auto")
    assert "stdlib-6m with stdlib-1m" in found["memory"]["sentence"]


@pytest.mark.slow
def test_a_home_that_cannot_be_used(cli: Cli) -> None:
    cli.environment["LOCALSPEC_HOME"] = "/dev/null"
    found = examined(cli, code=1)
    problems = {name for name, each in found.items() if each["level"] == "problem"}
    assert {"disk", "config", "daemon"} <= problems and all(
        "could not be checked" not in found[name]["sentence"] for name in problems
    )
    assert "LOCALSPEC_HOME" in found["disk"]["remedy"]
    assert found["llama_cpp"]["level"] == "ok"


@pytest.mark.slow
def test_the_daemon(cli: Cli) -> None:
    started = cli.json("daemon", "start")
    try:
        assert f"pid {started['pid']}, localspec {__version__}" in examined(cli)["daemon"]["sentence"]
        os.kill(started["pid"], signal.SIGSTOP)
        silent = examined(cli, code=1)["daemon"]
        assert silent["level"] == "problem" and silent["remedy"] == f"End it: kill -9 {started['pid']}"
    finally:
        os.kill(started["pid"], signal.SIGKILL)
    # It has left its discovery file behind.
    found = examined(cli)
    assert found["daemon"]["sentence"].startswith("No daemon runs")


@pytest.mark.slow
def test_on_a_terminal(cli: Cli) -> None:
    environment = {name: value for name, value in cli.environment.items() if name != "COLUMNS"}
    environment["TERM"] = "xterm"
    terminal = cli.terminal("doctor", env=environment, timeout=2 * DEADLINE_S, dimensions=(40, 80))
    terminal.expect_exact("checking mlx")
    terminal.expect(r"\x1b\[32mok +\x1b\[0m")
    assert ended(terminal) == 0
    shown = str(terminal.before)
    assert "daemon" in shown and "looking at" not in shown


def test_the_settings_of_clients_name_the_model_that_they_mean(cli: Cli) -> None:
    cli("config", "set", "model", "stdlib-1m")
    text = cli("doctor", "--clients").stdout
    assert text.startswith("The model `localspec` is the default one of all commands, now stdlib-1m.\n")
    assert "A model of up to 3 billion parameters" in text and "--bare, --core-tools" in text
