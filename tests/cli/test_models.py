"""``localspec models load`` and ``unload``, with the real daemon and the bundled pair."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psutil
import pytest

from localspec.models.catalogue import bundled_model
from tests import gpu
from tests.cli.harness import Cli, ended
from tests.daemon.harness import gone


def test_without_a_daemon_there_is_nothing_to_unload(cli: Cli) -> None:
    done = cli("models", "unload")
    assert done.returncode == 0 and "No model is loaded" in done.stderr
    assert cli("daemon", "status").returncode == 69
    assert cli.json("models", "unload") == {"models": []}


def test_a_model_is_loaded_kept_and_unloaded(cli: Cli) -> None:
    loaded = cli.json("models", "load", "-m", "stdlib-1m", "--draft", "none", "--keep-alive", "1000")
    assert (loaded["model"], loaded["draft"], loaded["running"]) == ("stdlib-1m", None, 0)
    assert 990 < loaded["idle_left_s"] <= 1000
    assert loaded["placement"] is None  # the library has no code for a GPU
    worker = psutil.Process(loaded["pid"])
    status = cli("daemon", "status").stdout
    assert f"worker pid {worker.pid}" in status and re.search(
        r" MB of memory \([\d.]+ MB planned for the model alone\), 4 sequences of 2048 tokens, idle; will be "
        r"unloaded in (99\d|1000) s",
        status,
    )
    (listed,) = [model for model in cli.json("models", "list")["models"] if model["loaded"]]
    assert listed["id"] == "stdlib-1m"
    done = cli("models", "unload", str(bundled_model("stdlib-1m")))
    assert done.returncode == 0 and done.stderr == "Unloaded stdlib-1m.\n"
    assert gone(worker)
    assert "model: none loaded" in cli("daemon", "status").stdout


def test_the_place_of_a_model_is_shown_before_and_after_its_load(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("daemon", "stop")
    monkeypatch.setitem(cli.environment, "PYTHONPATH", gpu.python_path(tmp_path))
    assert f"placement      planned: {gpu.WHERE}\n" in cli.process("models", "show", "bundled").stdout
    placed = cli.json("models", "load", "-m", "bundled", "--draft", "none")["placement"]
    assert placed == {"devices": ["Some GPU"], "layers": 5, "of": 7, "cpu_experts": 0}
    assert f", {gpu.WHERE}, 2 sequences of 2048 tokens, idle" in cli("daemon", "status").stdout
    assert f"placement      loaded: {gpu.WHERE}\n" in cli("models", "show", "bundled").stdout
    assert cli.json("models", "show", "bundled")["model"]["placement"] == placed
    cli("daemon", "stop")
    for key, value in (("n_ctx", "2048"), ("gpu_layers", "7")):
        cli("config", "set", key, value)
    shown = cli.process("models", "show", "bundled")
    assert "placement" not in shown.stdout and "7 layers of stdlib-6m (gpu_layers) need " in shown.stderr
    for key in ("n_ctx", "gpu_layers"):
        cli("config", "set", key, "--unset")


@pytest.mark.slow
def test_on_a_terminal_the_progress_is_shown(cli: Cli) -> None:
    terminal = cli.terminal("models", "load", "--keep-alive", "0")
    terminal.expect("(loading|warming up) the (target|draft) model")
    terminal.expect("stdlib-6m is loaded on ")
    assert ended(terminal) == 0
    status = cli("daemon", "status").stdout
    assert status.rstrip().endswith(", idle")


def test_an_unknown_model_is_named(cli: Cli) -> None:
    for command in (("load", "-m"), ("load",), ("unload", "-m"), ("unload",), ("pair", "-m")):
        done = cli("models", *command, "stdlib-7m", "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (1, "model_not_found")
        assert "stdlib-6m" in error["message"]


@pytest.mark.parametrize(
    "arguments", [("load", "-m"), ("load", "--draft"), ("unload",), ("pair",), ("show",)]
)
def test_a_name_without_a_letter_is_none(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli("models", *arguments, "")
    assert done.returncode == 2 and "the name of a model is empty" in done.stderr
