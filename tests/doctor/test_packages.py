"""Lines on Python, the backends and the bundled models, with their remedies."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from localspec.doctor import packages
from localspec.doctor.probe import Report
from localspec.errors import INSTALL_AGAIN, INSTALL_MLX
from localspec.models.library import list_models

USABLE = Report(versions="x 1", device="the CPU")
MISSING = Report(error="No module named 'x'", missing=True)
KILLED = Report(error="its test process was ended by SIGILL", signal="SIGILL")
BROKEN = Report(error="a library is not there")
BOTH = {"llama_cpp": True, "mlx": True}


def test_an_old_python_is_a_problem() -> None:
    assert packages.python((3, 11, 0), "/python", "Linux x86_64").level == "ok"
    found = packages.python((3, 10, 9), "/python", "Linux x86_64")
    assert found.level == "problem" and "3.10.9" in found.sentence and "3.11" in str(found.remedy)


@pytest.mark.parametrize(
    ("report", "level", "told", "remedy"),
    [
        (USABLE, "ok", "x 1 runs on the CPU, Z80", "None"),
        (replace(USABLE, device="a GPU"), "ok", "x 1 runs on a GPU.", "None"),
        (MISSING, "problem", "not installed", "Install it: pip install llama-cpp-python"),
        (KILLED, "problem", "ended by SIGILL", "--no-binary llama-cpp-python"),
        (BROKEN, "problem", "a library is not there", "Install it again: pip install --force-reinstall"),
    ],
)
def test_llama_cpp(report: Report, level: str, told: str, remedy: str) -> None:
    found = packages.llama_cpp(report, "Z80")
    assert found.level == level and told in found.sentence and remedy in str(found.remedy)


@pytest.mark.parametrize(
    ("report", "system", "level", "remedy"),
    [
        (USABLE, ("Linux", "x86_64"), "ok", "None"),
        (MISSING, ("Linux", "x86_64"), "warning", INSTALL_MLX),
        (MISSING, ("Darwin", "arm64"), "warning", INSTALL_MLX),
        (MISSING, ("Darwin", "x86_64"), "ok", "None"),
        (MISSING, ("Windows", "AMD64"), "ok", "None"),
        (KILLED, ("Linux", "x86_64"), "problem", "mlx mlx-cpu mlx-lm"),
        (BROKEN, ("Darwin", "arm64"), "problem", "mlx mlx-lm"),
    ],
)
def test_mlx(report: Report, system: tuple[str, str], level: str, remedy: str) -> None:
    found = packages.mlx(report, *system)
    assert found.level == level and remedy in str(found.remedy)


@pytest.mark.parametrize(
    ("usable", "both", "level", "remedy"),
    [
        (BOTH, "llama_cpp", "ok", "None"),
        (BOTH | {"mlx": False}, "llama_cpp", "ok", "None"),
        (BOTH | {"mlx": False}, "mlx", "problem", "set backend llama_cpp`"),
        (BOTH | {"llama_cpp": False}, "llama_cpp", "problem", "set backend mlx`"),
        ({"llama_cpp": False, "mlx": False}, "mlx", "problem", "Repair one of the two"),
    ],
)
def test_what_auto_takes(usable: dict[str, bool], both: str, level: str, remedy: str) -> None:
    found = packages.auto(usable, both, "as it is")
    assert found.level == level and remedy in str(found.remedy)
    assert f"runs on {both}, as it is." in found.sentence
    assert ("MLX directories on mlx;" in found.sentence) == usable["mlx"]


def test_the_bundled_models_are_complete_and_alike() -> None:
    models = list_models()
    found = packages.bundled(models)
    assert found.level == "ok" and str(models[0].vocab_fp) in found.sentence
    assert "stdlib-6m and stdlib-1m are installed" in found.sentence
    for wrong, expected in (
        (replace(models[1], problem="it is empty"), "it is empty"),
        (replace(models[1], vocab_fp="0"), "vocabularies"),
    ):
        found = packages.bundled([models[0], wrong])
        assert found.level == "problem" and expected in found.sentence and found.remedy == INSTALL_AGAIN
