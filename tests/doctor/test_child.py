"""A backend that crashes, hangs or is not there, in processes of their own."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from localspec.doctor.child import probed
from localspec.doctor.probe import Report
from tests.doctor.imports import BREAK, HANG, KILL, PRINT, REFUSE, at_import


@pytest.fixture
def spoil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory from which every Python process that is started imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


BACKENDS = pytest.mark.parametrize(("backend", "package"), [("llama_cpp", "llama_cpp"), ("mlx", "mlx")])


@pytest.mark.slow
def test_what_works_is_told() -> None:
    found = probed("llama_cpp")
    assert found.usable and found.versions.startswith("llama-cpp-python ") and found.device


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")
def test_mlx_works() -> None:
    found = probed("mlx")
    assert found.usable and "with mlx-lm" in found.versions and found.device


@BACKENDS
def test_a_package_that_is_not_there(spoil: Path, backend: str, package: str) -> None:
    at_import(spoil, package, REFUSE)
    found = probed(backend)
    assert found.missing and not found.usable and package in found.error


def test_a_package_that_another_one_lacks_is_a_defect(spoil: Path) -> None:
    at_import(spoil, "numpy", REFUSE)
    found = probed("llama_cpp")
    assert not found.missing and "numpy" in found.error


@BACKENDS
def test_a_crash(spoil: Path, backend: str, package: str) -> None:
    at_import(spoil, package, KILL)
    assert probed(backend) == Report(error="its test process was ended by SIGILL", signal="SIGILL")


@pytest.mark.slow
def test_a_hang(spoil: Path) -> None:
    at_import(spoil, "mlx", HANG)
    assert probed("mlx", patience=1.0) == Report(error="its test did not end within 1 s")


def test_an_error_of_any_kind(spoil: Path) -> None:
    at_import(spoil, "llama_cpp", BREAK)
    assert probed("llama_cpp") == Report(error="libllama.so cannot be opened")


@pytest.mark.slow
def test_what_a_backend_prints_is_passed_over(spoil: Path) -> None:
    at_import(spoil, "llama_cpp", PRINT)
    assert probed("llama_cpp").usable


def test_a_probe_that_says_nothing(spoil: Path) -> None:
    (spoil / "sitecustomize.py").write_text("import os, sys\nsys.stderr.write('oh\\n')\nos._exit(3)\n")
    assert probed("llama_cpp") == Report(error="its test process ended with 3: oh")


def test_a_python_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nothing/there")
    assert probed("mlx").error == "its test process cannot be started: No such file or directory"


@pytest.mark.slow
def test_a_file_of_the_current_directory_takes_no_modules_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    assert probed("llama_cpp").usable
