"""What facts are told as, and what is to be done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec._version import __version__
from localspec.doctor import checks
from localspec.doctor.finding import Finding, problem_of
from localspec.doctor.probe import Report
from localspec.errors import INSTALL_MLX, InvalidOptions
from localspec.models.catalogue import list_models
from localspec.protocol.messages import ModelDescription

USABLE = Report(versions="x 1", device="the CPU")
MISSING = Report(error="No module named 'x'", missing=True)
KILLED = Report(error="its process was ended by SIGILL", signal="SIGILL")
BROKEN = Report(error="a library is not there")
BOTH = {"llama_cpp": True, "mlx": True}


def model(name: str, problem: str | None = None) -> ModelDescription:
    return ModelDescription(
        id=name, path=f"/{name}.gguf", format="gguf", backend="llama_cpp", size=1, problem=problem
    )


def test_an_old_python_is_a_problem() -> None:
    assert checks.python((3, 11, 0), "/python", "Linux x86_64").level == "ok"
    found = checks.python((3, 10, 9), "/python", "Linux x86_64")
    assert found.level == "problem" and "3.10.9" in found.sentence and "3.11" in str(found.remedy)


@pytest.mark.parametrize(
    ("report", "level", "told", "remedy"),
    [
        (USABLE, "ok", "x 1 computes on the CPU, Z80", "None"),
        (replace(USABLE, device="a GPU"), "ok", "x 1 computes on a GPU.", "None"),
        (MISSING, "problem", "not installed", "Install it: pip install llama-cpp-python"),
        (KILLED, "problem", "ended by SIGILL", "--no-binary llama-cpp-python"),
        (BROKEN, "problem", "a library is not there", "Install it again: pip install --force-reinstall"),
    ],
)
def test_llama_cpp(report: Report, level: str, told: str, remedy: str) -> None:
    found = checks.llama_cpp(report, "Z80")
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
    found = checks.mlx(report, *system)
    assert found.level == level and remedy in str(found.remedy)


@pytest.mark.parametrize(
    ("usable", "both", "level", "remedy"),
    [
        (BOTH, "llama_cpp", "ok", "None"),
        (BOTH | {"mlx": False}, "llama_cpp", "ok", "None"),
        (BOTH | {"mlx": False}, "mlx", "problem", 'backend = "llama_cpp"'),
        (BOTH | {"llama_cpp": False}, "llama_cpp", "problem", 'backend = "mlx"'),
        ({"llama_cpp": False, "mlx": False}, "mlx", "problem", "Mend one of the two"),
    ],
)
def test_what_auto_takes(usable: dict[str, bool], both: str, level: str, remedy: str) -> None:
    found = checks.auto(usable, both, "as it is")
    assert found.level == level and remedy in str(found.remedy)
    assert f"runs on {both}, as it is." in found.sentence
    assert ("MLX directories on mlx;" in found.sentence) == usable["mlx"]


def test_the_bundled_models_are_complete_and_alike() -> None:
    models = list_models()
    found = checks.bundled(models)
    assert found.level == "ok" and str(models[0].vocab_fp) in found.sentence
    assert "stdlib-6m and stdlib-1m are there as gguf and mlx" in found.sentence
    for wrong, told in (
        (replace(models[2], problem="it is empty"), "it is empty"),
        (replace(models[2], vocab_fp="0"), "vocabularies"),
    ):
        found = checks.bundled([*models[:2], wrong, models[3]])
        assert found.level == "problem" and told in found.sentence and "pip install" in str(found.remedy)


def test_a_directory_of_models(tmp_path: Path) -> None:
    config = Path("/config.toml")
    good, bad = [model("a"), model("b")], [model(str(n), "it is empty") for n in range(5)]
    assert checks.model_dir(tmp_path, good, config).sentence == f"{tmp_path} holds 2 models."
    found = checks.model_dir(tmp_path, [*good, *bad], config)
    assert found.level == "warning" and found.sentence.count("it is empty") == 3
    assert "7 models" in found.sentence and "and 2 more" in found.sentence
    assert checks.model_dir(tmp_path, [], config).level == "warning"
    gone = checks.model_dir(tmp_path / "gone", [], config)
    assert "is not there" in gone.sentence and str(config) in str(gone.remedy)
    (tmp_path / "file").touch()
    assert "is no directory" in checks.model_dir(tmp_path / "file", [], config).sentence


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_directory_that_cannot_be_read(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    found = checks.model_dir(tmp_path, [], Path("/config.toml"))
    tmp_path.chmod(0o700)
    assert found.level == "warning" and "chmod u+rx" in str(found.remedy)


@pytest.mark.parametrize(("available", "level"), [(8 << 30, "ok"), (100 << 20, "warning")])
def test_memory(available: int, level: str) -> None:
    found = checks.memory(available, 16 << 30)
    assert found.level == level and "of 16.0 GiB" in found.sentence


def test_homes_of_one_place_and_of_several() -> None:
    one = checks.homes({"data": Path("/h/data"), "cache": Path("/h/cache")})
    assert one.sentence.endswith("data, cache in /h.")
    two = checks.homes({"data": Path("/a/data"), "cache": Path("/b/cache")})
    assert two.sentence.endswith("data in /a/data, cache in /b/cache.")


def test_a_daemon_of_another_version() -> None:
    assert checks.daemon(__version__, 7).level == "ok"
    found = checks.daemon("0.0.1", 7)
    assert found.level == "warning" and "localspec daemon stop" in str(found.remedy)
    assert checks.silent_daemon(7).remedy == "End it: kill -9 7"


def test_an_error_as_a_finding() -> None:
    found = problem_of("config", InvalidOptions("there is no key", "Mend it."))
    assert found == Finding("config", "problem", "There is no key.", "Mend it.")
