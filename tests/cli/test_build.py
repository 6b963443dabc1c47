"""The build of llama.cpp: its options, the wheel that is kept, and the CPU where an accelerator's fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.accelerator import Accelerator
from localspec.cli import build
from localspec.errors import BackendUnavailable
from tests.hygiene.source import ROOT

PIP = """
import os, pathlib, sys
log, defined = pathlib.Path({log!r}), os.environ.get("SKBUILD_CMAKE_DEFINE", "")
with log.open("a") as file:
    print(sys.argv[1], defined if sys.argv[1] == "wheel" else sys.argv[-1].split("/")[-1], file=file)
if sys.argv[1] == "wheel":
    print("[1/2] Building CXX object")
    if {failing!r} in defined:
        print("\\033[31mCMake Error at ggml:178 (target_link_libraries):\\033[0m\\n\\n  no such shader\\n")
        sys.exit("error: subprocess-exited-with-error")
    pathlib.Path(sys.argv[sys.argv.index("--wheel-dir") + 1], "llama.whl").touch()
"""
VULKAN = Accelerator("vulkan", "Vulkan", "an AMD GPU", "", ("GGML_VULKAN=ON",))


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(build, "find_accelerators", lambda: [VULKAN])
    (tmp_path / "llama.txt").write_text("llama-cpp-python==1")
    return tmp_path / "llama.txt"


def runs(lock: Path, monkeypatch: pytest.MonkeyPatch, failing: str = "NOTHING") -> list[str]:
    """Install by a pip whose build fails with these options; returns what it was run with."""
    log, pip = lock.with_name("log"), lock.with_name("pip.py")
    log.write_text("")
    pip.write_text(PIP.format(log=str(log), failing=failing))
    monkeypatch.setattr(build, "PIP", (sys.executable, str(pip)))
    build.install(lock)
    return log.read_text().splitlines()


def test_a_build_is_kept_by_its_options(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, installed = runs(lock, monkeypatch)
    assert built.startswith("wheel LLAVA_BUILD=OFF;") and ";GGML_VULKAN=ON;" in built
    lean = lock.with_name("lean.cmake")  # of another checkout
    lean.write_text(build.LEAN.read_text())
    monkeypatch.setattr(build, "LEAN", lean)
    assert runs(lock, monkeypatch) == [installed] == ["install llama.whl"]
    monkeypatch.setattr(build, "find_accelerators", list)
    built, _ = runs(lock, monkeypatch)
    assert "VULKAN" not in built


def test_a_build_is_kept_for_the_gpus_of_this_machine(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = lock.with_name("bus")
    for slot, kind in (("1", "bc03sc02i00"), ("2", "bc12sc00i00"), ("3", "bc02sc00i00")):
        (bus / slot).mkdir(parents=True)
        (bus / slot / "modalias").write_text(f"pci:v{slot}{kind}")
    found = build._gpus(bus)
    assert found == ["pci:v1bc03sc02i00", "pci:v2bc12sc00i00"]
    monkeypatch.setattr(build, "_gpus", lambda: found)
    assert [len(runs(lock, monkeypatch)) for _ in range(2)] == [2, 1]
    found.pop()
    assert len(runs(lock, monkeypatch)) == 2


def test_a_wheel_that_is_installed_stays(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(lock, monkeypatch)
    (wheel,) = lock.parent.glob("cache/builds/*/llama.whl")
    info = lock.with_name("llama_cpp_python-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Name: llama-cpp-python")
    (info / "direct_url.json").write_text(json.dumps({"url": wheel.as_uri()}))
    monkeypatch.syspath_prepend(str(lock.parent))
    assert runs(lock, monkeypatch) == []
    (info / "direct_url.json").unlink()
    assert runs(lock, monkeypatch) == ["install llama.whl"]


def test_a_build_that_fails_is_replaced_by_one_for_the_cpu(
    lock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(runs(lock, monkeypatch, failing="VULKAN")) == 3
    shown = capsys.readouterr().err
    assert "built for Vulkan: an AMD GPU." in shown
    said = "\nCMake Error at ggml:178 (target_link_libraries):\nno such shader\n"
    assert said in shown and "built for the CPU instead. Install what is missing, then run `make" in shown
    lock.write_text("llama-cpp-python==2")
    with pytest.raises(BackendUnavailable, match=r"(?s)compiled: .*/build\.log\n.*no such shader"):
        runs(lock, monkeypatch, failing="LLAVA")


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_an_accelerator_reaches_the_check_as_it_was_written(tmp_path: Path) -> None:
    for wanted in ("it's", "cpu; exit 7", "$(id)"):
        given = (f"VENV={tmp_path}", f"PYTHON={sys.executable}")
        environment = {**os.environ, "ACCEL": wanted}
        done = subprocess.run(
            ("make", "install", *given), cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert f"ACCEL={wanted} is no accelerator" in done.stderr
