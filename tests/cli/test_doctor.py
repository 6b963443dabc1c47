"""``localspec doctor`` as people call it: on a healthy machine, and where something is broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pexpect
import pytest

from localspec._version import __version__
from tests.cli.harness import CONFIG, Cli
from tests.doctor.broken import BROKEN, WORSE, Told, write_broken, write_worse
from tests.doctor.imports import KILL, REFUSE, at_import
from tests.waiting import DEADLINE_S

CHECKS = [
    *("python", "llama_cpp", "mlx", "auto", "bundled", "config", "models", "model", "pairing", "memory"),
    *("ngrams", "history", "disk", "home", "permissions", "daemon", "sockets", "service", "http", "editors"),
]
CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run(("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")).returncode == 0
)
OF_THE_MACHINE = {"memory", "disk"}
"""may be short on any machine"""
LEVELS = ("ok", "warning", "problem")
MLX = "ok" if find_spec("mlx_lm") is not None else "warning"


@pytest.fixture
def cli() -> Iterator[Cli]:
    """A command of a user without other programs' models, in a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    command = Cli(home / "home")
    command.environment["HOME"] = str(home)
    for name in [name for name in command.environment if name.startswith(("HF_", "XDG_", "OLLAMA_"))]:
        del command.environment[name]
    yield command
    command("daemon", "stop")
    shutil.rmtree(home, ignore_errors=True)


def spoil(cli: Cli, folder: Path, package: str, what: str) -> None:
    """Let the import of a package go wrong in every process of this command."""
    at_import(folder, package, what)
    cli.environment["PYTHONPATH"] = os.pathsep.join([str(folder), cli.environment.get("PYTHONPATH", "")])


def examined(cli: Cli, *, code: int = 0) -> dict[str, dict[str, Any]]:
    """The findings by name, the worst of each name."""
    findings = told(cli, code=code)
    return {each["name"]: each for each in sorted(findings, key=lambda each: LEVELS.index(each["level"]))}


def told(cli: Cli, *, code: int = 0) -> list[dict[str, Any]]:
    """The findings, all of them well-formed."""
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
    return findings


@pytest.mark.slow
def test_settings_for_a_model_that_is_not_here_are_told(cli: Cli) -> None:
    (cli.home / "config" / "config.toml").write_text(
        CONFIG + '[models."bundled"]\nk = 1\n[models."budnled"]\nk = 1\n'
    )
    config = examined(cli)["config"]
    assert config["level"] == "warning" and "'budnled'" in config["sentence"], config


@pytest.mark.slow
def test_a_healthy_machine(cli: Cli) -> None:
    found = examined(cli)
    assert sorted(found) == sorted(CHECKS)
    assert {name: each["level"] for name, each in found.items() if name not in OF_THE_MACHINE} == {
        name: MLX if name == "mlx" else "ok" for name in CHECKS if name not in OF_THE_MACHINE
    }
    assert __version__ in found["python"]["sentence"]
    assert found["llama_cpp"]["sentence"].startswith("llama-cpp-python ")
    assert "stdlib-6m and stdlib-1m" in found["bundled"]["sentence"]
    assert found["daemon"]["sentence"].startswith("No daemon runs")
    assert f"in {cli.home}." in found["home"]["sentence"]
    assert found["pairing"]["sentence"].startswith("stdlib-1m drafts for stdlib-6m, chosen by auto")
    assert "stdlib-6m with stdlib-1m" in found["memory"]["sentence"]
    assert (
        "No service can be installed" in found["service"]["sentence"]
        or "systemd" in found["service"]["sentence"]
    )


@pytest.mark.slow
def test_a_pair_that_may_not_take_what_it_needs(cli: Cli) -> None:
    assert cli("config", "set", "memory_mb", "100").returncode == 0
    memory = examined(cli)["memory"]
    assert memory["level"] == "warning" and "100.0 MB are available" in memory["sentence"]


@pytest.mark.slow
def test_a_line_for_each_check(cli: Cli) -> None:
    done = cli("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(dict.fromkeys(line.split()[1] for line in done.stdout.splitlines())) == CHECKS
    assert {line.split()[0] for line in done.stdout.splitlines()} <= {"ok", "warning"}


@pytest.mark.slow
def test_a_home_that_is_not_there_yet(cli: Cli, tmp_path: Path) -> None:
    cli.environment["LOCALSPEC_HOME"] = str(tmp_path / "new")
    found = examined(cli)
    assert "the defaults apply" in found["config"]["sentence"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["cache", "data", "runtime", "state"]


@pytest.mark.slow
def test_a_home_that_cannot_be_used(cli: Cli) -> None:
    cli.environment["LOCALSPEC_HOME"] = "/dev/null"
    found = examined(cli, code=1)
    problems = {name for name, each in found.items() if each["level"] == "problem"}
    assert {"home", "config", "daemon"} <= problems and all(
        "could not be checked" not in found[name]["sentence"] for name in problems
    )
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
    there, gone = (line for line in done.stdout.splitlines() if " model_dirs " in line)
    (broken,) = (line for line in done.stdout.splitlines() if " models " in line[:20])
    assert done.returncode == 0
    assert there.startswith("ok") and f"{models} has 1 model." in there
    assert gone.startswith("warning") and f"{tmp_path}/gone does not exist." in gone
    assert broken.startswith("warning") and "1 cannot be used: a (" in broken


@pytest.mark.slow
@pytest.mark.parametrize(("write", "expected"), [(write_broken, BROKEN), (write_worse, WORSE)])
def test_a_broken_home(cli: Cli, write: Callable[[Path, Path], None], expected: list[Told]) -> None:
    """Each problem is printed with its remedy, and no other line."""
    write(cli.home, cli.home.parent)
    code = int(any(level == "problem" for _, level, _, _ in expected))
    found = [each for each in told(cli, code=code) if each["level"] != "ok"]
    found = [each for each in found if each["name"] not in {*OF_THE_MACHINE, "mlx"}]
    assert [(each["name"], each["level"]) for each in found] == [
        (name, level) for name, level, _, _ in expected
    ]
    for each, (_, _, sentence, remedy) in zip(found, expected, strict=True):
        assert sentence in each["sentence"] and remedy in each["remedy"], each


@pytest.mark.slow
def test_what_the_remedies_say_mends_a_home(cli: Cli) -> None:
    """Remedies that are commands are run; those that are only steps in words are left."""
    write_broken(cli.home, cli.home.parent)
    before = examined(cli)
    for name in ("permissions", "ngrams", "model_dirs"):
        (command, *_) = re.findall(r"`([^`]+)`", before[name]["remedy"])
        subprocess.run(command, shell=True, check=True)
    assert cli("daemon", "start").returncode == 0
    after = examined(cli)
    mended = {name for name in before if before[name]["level"] != after.get(name, before[name])["level"]}
    assert {"permissions", "ngrams", "sockets"} <= mended


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MOUNT, reason="this user can mount nothing")
def test_a_full_disk(cli: Cli) -> None:
    (cli.home / "data").mkdir()
    mounted = f"mount -t tmpfs -o size=1m,mode=0700 none '{cli.home}/data' && exec \"$@\""
    command = ("unshare", "--mount", "sh", "-c", mounted, "sh", *cli.command, "doctor", "--json")
    done = subprocess.run(command, env=cli.environment, capture_output=True, text=True)
    found = [each for each in json.loads(done.stdout)["findings"] if each["name"] == "disk"]
    (full,) = (each for each in found if "for data (" in each["sentence"])
    assert full["level"] == "problem" and "`localspec models rm NAME`" in full["remedy"]
    assert len(found) == 2 and done.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "variables", "name", "told"),
    [
        ("model_dirs = ", {}, "config", "is not valid TOML"),
        ('[options]\nmodle = "x"', {}, "config", "did you mean 'options.model'"),
        ("", {"LOCALSPEC_BACKEND": "nonsense"}, "config", "`unset LOCALSPEC_BACKEND`"),
        ("", {"LOCALSPEC_MODEL": "nonsense"}, "model", "'nonsense'"),
        ('[options]\nmodel = "nonsense"', {}, "model", "`localspec config set model NAME`"),
        ('[options]\nmodel = "/etc/passwd"', {}, "model", "`localspec config set model NAME`"),
        ('[options]\ndraft = "nonsense"', {}, "pairing", "`localspec config set draft auto`"),
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


@pytest.mark.slow
def test_without_mlx(cli: Cli, tmp_path: Path) -> None:
    spoil(cli, tmp_path, "mlx", REFUSE)
    found = examined(cli)
    assert found["mlx"]["level"] == "warning" and "make dev" in found["mlx"]["remedy"]
    assert "MLX directories on no backend" in found["auto"]["sentence"]
    cli.environment["LOCALSPEC_BACKEND"] = "mlx"
    found = examined(cli, code=1)
    assert found["model"]["level"] == "problem" and "Repair mlx" in found["model"]["remedy"]


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
    found = examined(cli)
    assert found["daemon"]["sentence"].startswith("No daemon runs")
    assert found["sockets"]["level"] == "warning" and "daemon.json behind" in found["sockets"]["sentence"]
    assert cli("daemon", "start").returncode == 0
    assert examined(cli)["sockets"]["level"] == "ok"


@pytest.mark.slow
def test_a_daemon_with_other_settings(cli: Cli) -> None:
    cli("daemon", "start")
    assert cli("config", "set", "n_ctx", "512").returncode == 0
    daemon = examined(cli)["daemon"]
    assert daemon["level"] == "warning" and "other settings" in daemon["sentence"]
    assert cli("daemon", "stop").returncode == 0
    assert examined(cli)["daemon"]["level"] == "ok"


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
    terminal.expect_exact("checking mlx")
    terminal.expect_exact("\x1b[32mok\x1b[0m")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    shown = str(terminal.before)
    assert "daemon" in shown and "looking at" not in shown
