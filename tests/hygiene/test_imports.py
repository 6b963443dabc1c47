"""Imports between packages: the layers, and the cost of starting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hygiene.source import ROOT

LINTER = Path(sys.executable).with_name("lint-imports")
HEAVY = ("numpy", "llama_cpp", "llguidance", "mlx", "mlx_lm", "jinja2", "textual")
LOOP = ("asyncio", "websockets")
START = (*HEAVY, "psutil", "sqlite3", "huggingface_hub")
EDITORS = ("pygls", "lsprotocol", "asyncio")
MODULES = 420
"""loaded by `localspec run` up to its first byte from a warm daemon; 376 when this was written"""
ENGINE = ("localspec.engine", "localspec.backends", "localspec.speculation", "localspec.worker")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINTER), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_every_module_imports_from_its_own_layer_or_below() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert "0 broken" in linted.stdout


LAYERS = (
    *("completion", "constraints", "models", "tools", "backends", "memory", "speculation", "engine"),
    *("worker", "ranks", "daemon", "client", "http", "hub"),
)


def copy(folder: Path, module: str, text: str) -> Path:
    """A small package of the same shape, with one import too many."""
    for layer in LAYERS:
        (folder / "localspec" / layer).mkdir(parents=True)
        (folder / "localspec" / layer / "__init__.py").touch()
    plain = ("accelerator", "child", "config", "errors", "home", "process", "protocol", "thread", "wording")
    for name in ("__init__", *plain, "backends/base", "backends/llama_cpp"):
        (folder / "localspec" / f"{name}.py").touch()
    (folder / "localspec" / module).write_text(text)
    return folder


TOO_MANY = [
    ("engine/round.py", "def late():\n    import localspec.worker", "Layers"),
    ("speculation/x.py", "import localspec.models", "Speculation sees"),
    ("engine/x.py", "import asyncio", "The engine and everything under it"),
    ("daemon/x.py", "import numpy", "Daemon and client stay light"),
    ("protocol.py", "import localspec.config", "Layers"),
    ("wording.py", "import assets.bench.beside", "The package imports nothing"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "text", "broken"), TOO_MANY)
def test_an_import_too_many_is_noticed(tmp_path: Path, module: str, text: str, broken: str) -> None:
    linted = lint(copy(tmp_path, module, text))
    assert linted.returncode == 1, linted.stderr
    assert broken in linted.stdout.split("Broken contracts")[1]


def test_two_modules_of_one_layer_that_import_each_other_are_noticed(tmp_path: Path) -> None:
    copy(tmp_path, "home.py", "import localspec.wording")
    (tmp_path / "localspec" / "wording.py").write_text("import localspec.home")
    linted = lint(tmp_path)
    assert linted.returncode == 1, linted.stderr
    assert "No import cycles" in linted.stdout.split("Broken contracts")[1]


def loaded_by(module: str) -> set[str]:
    """The modules in memory after importing one in a fresh interpreter."""
    program = f"import {module}, sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                              check=True).stdout.split())  # fmt: skip


LATE = [
    ("localspec", START + LOOP),
    ("localspec.cli.run", START),
    ("localspec.errors", HEAVY + LOOP),
    ("localspec.config", HEAVY + LOOP),
    ("localspec.protocol.messages", HEAVY + LOOP),
    ("localspec.protocol.frames", HEAVY + LOOP),
    ("localspec.models.library", HEAVY + LOOP),
    ("localspec.daemon.__main__", (*HEAVY, *ENGINE)),
    ("localspec.daemon.server", (*HEAVY, "localspec.ranks")),
    ("localspec.worker.loop", ("localspec.ranks",)),
]


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("localspec.cli.main", START + EDITORS),
        ("localspec.cli.app", EDITORS),
        ("localspec.client", (*START, "localspec.daemon")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in LATE),
    ],
)
def test_importing_a_light_module_loads_nothing_heavy(module: str, unwanted: tuple[str, ...]) -> None:
    assert loaded_by(module) & set(unwanted) == set()


@pytest.mark.slow
def test_a_run_loads_few_modules() -> None:
    assert len(loaded_by("localspec.cli.main, localspec.cli.run, localspec.client.client")) <= MODULES
