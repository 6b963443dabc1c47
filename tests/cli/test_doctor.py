"""``localspec doctor`` as people call it: on a healthy machine, and where something is broken."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pexpect
import pytest

from localspec._version import __version__
from tests.cli.harness import CONFIG, Cli
from tests.doctor.imports import KILL, REFUSE, at_import
from tests.waiting import DEADLINE_S

CHECKS = [
    *("python", "llama_cpp", "mlx", "auto", "bundled", "config", "model", "model_dirs", "memory", "home"),
    "daemon",
]
MLX = "ok" if find_spec("mlx_lm") is not None else "warning"


@pytest.fixture
def cli() -> Iterator[Cli]:
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    yield Cli(home)
    shutil.rmtree(home)


def spoil(cli: Cli, folder: Path, package: str, what: str) -> None:
    """Let the import of a package go wrong in every process of this command."""
    at_import(folder, package, what)
    cli.environment["PYTHONPATH"] = os.pathsep.join([str(folder), cli.environment.get("PYTHONPATH", "")])


def examined(cli: Cli, *, code: int = 0) -> dict[str, dict[str, Any]]:
    """The findings by name, the worst of each name; all of them are well-formed."""
    done = cli("doctor", "--json")
    assert (done.returncode, done.stderr) == (code, ""), done.stdout
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    findings = found["findings"]
    levels = ("ok", "warning", "problem")
    for each in findings:
        assert set(each) == {"name", "level", "sentence", "remedy"}
        assert each["sentence"][-1] in ".?" and "Traceback" not in each["sentence"]
        assert (each["level"] == "ok") == (each["remedy"] is None)
    assert found["ok"] == (code == 0) == all(each["level"] != "problem" for each in findings)
    return {each["name"]: each for each in sorted(findings, key=lambda each: levels.index(each["level"]))}


def test_settings_for_a_model_that_is_not_here_are_told(cli: Cli) -> None:
    (cli.home / "config" / "config.toml").write_text(
        CONFIG + '[models."bundled"]\nk = 1\n[models."budnled"]\nk = 1\n'
    )
    config = examined(cli)["config"]
    assert config["level"] == "warning" and "'budnled'" in config["sentence"], config


def test_a_healthy_machine(cli: Cli) -> None:
    found = examined(cli)
    assert sorted(found) == sorted(CHECKS)
    assert {name: each["level"] for name, each in found.items() if name != "memory"} == {
        name: MLX if name == "mlx" else "ok" for name in CHECKS if name != "memory"
    }
    assert __version__ in found["python"]["sentence"]
    assert found["llama_cpp"]["sentence"].startswith("llama-cpp-python ")
    assert "stdlib-6m and stdlib-1m" in found["bundled"]["sentence"]
    assert found["daemon"]["sentence"].startswith("No daemon runs")
    assert f"in {cli.home}." in found["home"]["sentence"]


@pytest.mark.slow
def test_a_line_for_each_check(cli: Cli) -> None:
    done = cli("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1] for line in done.stdout.splitlines()] == CHECKS
    assert {line.split()[0] for line in done.stdout.splitlines()} <= {"ok", "warning"}


@pytest.mark.slow
def test_a_home_that_is_not_there_yet(cli: Cli, tmp_path: Path) -> None:
    cli.environment["LOCALSPEC_HOME"] = str(tmp_path / "new")
    found = examined(cli)
    assert "the defaults hold" in found["config"]["sentence"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["cache", "data", "runtime", "state"]


@pytest.mark.slow
def test_a_home_that_cannot_be_used(cli: Cli) -> None:
    cli.environment["LOCALSPEC_HOME"] = "/dev/null"
    found = examined(cli, code=1)
    assert found["home"]["level"] == found["config"]["level"] == found["daemon"]["level"] == "problem"
    assert "LOCALSPEC_HOME" in found["home"]["remedy"]
    assert found["llama_cpp"]["level"] == found["bundled"]["level"] == "ok"


@pytest.mark.slow
def test_a_directory_that_cannot_be_written(cli: Cli) -> None:
    (cli.home / "data").write_text("no directory")
    done = cli("doctor")
    assert done.returncode == 1 and done.stderr == ""
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("problem"))
    assert f"{cli.home}/data" in line and "Set LOCALSPEC_HOME" in line


@pytest.mark.slow
def test_the_models_of_model_dirs(cli: Cli, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "a.gguf").write_text("no model")
    lines = f'model_dirs = ["{models}", "{tmp_path}/gone"]\n' + CONFIG
    (cli.home / "config" / "config.toml").write_text(lines)
    done = cli("doctor")
    broken, gone = (line for line in done.stdout.splitlines() if " model_dirs " in line)
    assert done.returncode == 0
    assert broken.startswith("warning") and f"{models} holds 1 model; broken: a (" in broken
    assert gone.startswith("warning") and f"{tmp_path}/gone is not there." in gone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "variables", "name", "told"),
    [
        ("model_dirs = ", {}, "config", "is not valid TOML"),
        ('[options]\nmodle = "x"', {}, "config", "did you mean 'options.model'"),
        ("", {"LOCALSPEC_BACKEND": "nonsense"}, "config", "Mend LOCALSPEC_BACKEND."),
        ("", {"LOCALSPEC_MODEL": "nonsense"}, "model", "'nonsense'"),
    ],
)
def test_settings_that_are_wrong(
    cli: Cli, config: str, variables: dict[str, str], name: str, told: str
) -> None:
    (cli.home / "config" / "config.toml").write_text(config)
    cli.environment |= variables
    found = examined(cli, code=1)
    assert [each["name"] for each in found.values() if each["level"] == "problem"] == [name]
    assert told in f"{found[name]['sentence']} {found[name]['remedy']}"


def test_without_mlx(cli: Cli, tmp_path: Path) -> None:
    spoil(cli, tmp_path, "mlx", REFUSE)
    found = examined(cli)
    assert found["mlx"]["level"] == "warning" and "localspec[mlx]" in found["mlx"]["remedy"]
    assert "MLX directories on no backend" in found["auto"]["sentence"]
    cli.environment["LOCALSPEC_BACKEND"] = "mlx"
    found = examined(cli, code=1)
    assert found["model"]["level"] == "problem" and "Mend mlx" in found["model"]["remedy"]


@pytest.mark.slow
def test_a_backend_that_crashes(cli: Cli, tmp_path: Path) -> None:
    spoil(cli, tmp_path, "llama_cpp", KILL)
    found = examined(cli, code=1)
    assert found["llama_cpp"]["level"] == "problem" and "SIGILL" in found["llama_cpp"]["sentence"]
    assert found["mlx"]["level"] == MLX and found["bundled"]["level"] == "ok"


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
    assert examined(cli)["daemon"]["sentence"].startswith("No daemon runs")


@pytest.mark.slow
def test_on_a_terminal(cli: Cli) -> None:
    command, *arguments = (*cli.command, "doctor")
    environment = {name: value for name, value in cli.environment.items() if name != "COLUMNS"}
    terminal = pexpect.spawn(
        command,
        arguments,
        env={**environment, "TERM": "xterm"},
        timeout=2 * DEADLINE_S,
        dimensions=(40, 80),
        encoding="utf-8",
    )
    terminal.expect_exact("looking at mlx")
    terminal.expect_exact("\x1b[32mok\x1b[0m")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    shown = str(terminal.before)
    assert "daemon" in shown and "looking at" not in shown
