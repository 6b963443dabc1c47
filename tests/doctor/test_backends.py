"""Lines on Python and the backends, and probes that crash, hang or find no package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.accelerator import Accelerator
from localspec.doctor import Finding, backends
from localspec.doctor.backends import probe_backend
from localspec.doctor.probe import CPU, Report
from localspec.errors import INSTALL_MLX
from tests.doctor.imports import BREAK, HANG, KILL, PRINT, REFUSE, at_import


@pytest.fixture
def spoil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory from which every Python process that is started imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


BACKENDS = pytest.mark.parametrize(("backend", "package"), [("llama_cpp", "llama_cpp"), ("mlx", "mlx")])


@BACKENDS
def test_a_package_that_is_not_there(spoil: Path, backend: str, package: str) -> None:
    at_import(spoil, package, REFUSE)
    found = probe_backend(backend)
    assert found.missing and not found.usable and package in found.error


def test_a_package_that_another_one_lacks_is_a_defect(spoil: Path) -> None:
    at_import(spoil, "numpy", REFUSE)
    found = probe_backend("llama_cpp")
    assert not found.missing and "numpy" in found.error


@BACKENDS
def test_a_crash(spoil: Path, backend: str, package: str) -> None:
    at_import(spoil, package, KILL)
    assert probe_backend(backend) == Report(error="its test process was ended by SIGILL")


@pytest.mark.slow
def test_a_hang(spoil: Path) -> None:
    at_import(spoil, "mlx", HANG)
    assert probe_backend("mlx", patience=1.0) == Report(error="its test did not end within 1 s")


def test_an_error_of_any_kind(spoil: Path) -> None:
    at_import(spoil, "llama_cpp", BREAK)
    assert probe_backend("llama_cpp") == Report(error="libllama.so cannot be opened")


@pytest.mark.slow
def test_output_of_a_backend_is_ignored(spoil: Path) -> None:
    at_import(spoil, "llama_cpp", PRINT)
    assert probe_backend("llama_cpp").usable


def test_a_probe_without_output(spoil: Path) -> None:
    (spoil / "sitecustomize.py").write_text("import os, sys\nsys.stderr.write('oh\\n')\nos._exit(3)\n")
    assert probe_backend("llama_cpp") == Report(error="its test process ended with 3: oh")


# The lines.

USABLE = Report(versions="x 1", device="a GPU")
MISSING = Report(error="No module named 'x'", missing=True)
KILLED = Report(error="its test process was ended by SIGILL")
UNUSED = "There is an NVIDIA GPU here, which llama.cpp does not use."
BROKEN = Report(error="a library is not there")
LATE = Report(error="its test did not end within 60 s")


def only(found: Iterator[Finding]) -> Finding:
    (one,) = found
    return one


@pytest.mark.parametrize(
    ("report", "level", "sentence", "remedy"),
    [
        (USABLE, "ok", "x 1 runs on a GPU.", "None"),
        (MISSING, "problem", "not installed", "Install it: pip install llama-cpp-python"),
        (KILLED, "problem", "ended by SIGILL", "Build it anew: `make install`, or the command"),
        (BROKEN, "problem", "a library is not there", "Build it anew: `make install`, or the command"),
        (LATE, "problem", "60 s", "doctor` again: a GPU's driver"),
    ],
)
def test_the_line_of_llama_cpp(report: Report, level: str, sentence: str, remedy: str) -> None:
    found = only(backends.llama_cpp(report, []))
    assert found.level == level and sentence in found.sentence and remedy in str(found.remedy)


@pytest.mark.parametrize(
    ("device", "missing", "remedy"),
    [
        (CPU, "", "Run `make install ACCEL=cuda`"),
        (CPU, "nvcc", "CUDA needs nvcc. docs/install.md names the packages. Then run `make install"),
        ("NVIDIA H200, 150.1 GB free; NVIDIA H200, 149.9 GB free", "", None),
    ],
)
def test_a_gpu_that_is_not_used_is_named_with_what_is_to_be_done(
    device: str, missing: str, remedy: str | None
) -> None:
    here = [Accelerator("cuda", "CUDA", "an NVIDIA GPU", missing, ())]
    line, *unused = backends.llama_cpp(Report(versions="x 1", device=device), here)
    assert line.level == "ok" and f"x 1 runs on {device}" in line.sentence
    assert [each.sentence for each in unused] == [UNUSED] * (remedy is not None)
    assert all(each.level == "warning" and str(each.remedy).startswith(str(remedy)) for each in unused)


@pytest.mark.parametrize(
    ("report", "system", "level", "remedy"),
    [
        (USABLE, ("Linux", "x86_64"), "ok", "None"),
        (MISSING, ("Linux", "x86_64"), "warning", INSTALL_MLX),
        (MISSING, ("Darwin", "x86_64"), "ok", "None"),
        (MISSING, ("Windows", "AMD64"), "ok", "None"),
        (KILLED, ("Linux", "x86_64"), "problem", "mlx mlx-cpu mlx-lm"),
        (BROKEN, ("Darwin", "arm64"), "problem", "mlx mlx-lm"),
    ],
)
def test_the_line_of_mlx(report: Report, system: tuple[str, str], level: str, remedy: str) -> None:
    found = only(backends.mlx(report, *system))
    assert found.level == level and remedy in str(found.remedy)
