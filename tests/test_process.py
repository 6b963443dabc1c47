"""Directory and environment of the processes that localspec starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localspec import process

ABORT = """
import os, sys
{before}
import localspec, llama_cpp.llama_cpp as lib, ctypes
base = os.path.join(os.path.dirname(lib.__file__), "lib", "libggml-base.so")
ctypes.CDLL(base).ggml_abort(b"x", 1, b"over")
"""


def test_a_python_of_ours_does_not_import_from_where_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')\n")
    command = (*process.python("json.tool", "--help"),)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "json.tool" in done.stdout


def test_relative_paths_stay_those_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("LOCALSPEC_HOME", "here"),
        ("HF_HOME", "../cache"),
        ("LLAMA_CPP_LIB_PATH", "lib"),
        ("OLLAMA_MODELS", "~/models"),
        ("LLAMA_CACHE", ""),
        ("PYTHONPATH", os.pathsep.join(("", "src", "/lib", ""))),
        ("LOCALSPEC_MODEL", "qwen"),
        ("NOTIFY_SOCKET", "@x"),
    ):
        monkeypatch.setenv(name, value)
    here = os.getcwd()
    around = process.surroundings(without=("NOTIFY_SOCKET",))
    assert around["env"]["LLAMA_CPP_LIB_PATH"] == os.path.join(here, "lib")
    assert around["cwd"] == "/" and "NOTIFY_SOCKET" not in around["env"]
    found = {name: around["env"][name] for name in ("LOCALSPEC_HOME", "HF_HOME", "OLLAMA_MODELS")}
    assert found == {
        "LOCALSPEC_HOME": os.path.join(here, "here"),
        "HF_HOME": os.path.join(os.path.dirname(here), "cache"),
        "OLLAMA_MODELS": os.path.expanduser("~/models"),
    }
    assert around["env"]["PYTHONPATH"] == os.pathsep.join((os.path.join(here, "src"), "/lib"))
    assert (around["env"]["LLAMA_CACHE"], around["env"]["LOCALSPEC_MODEL"]) == ("", "qwen")
    assert around["env"].keys() == os.environ.keys() - {"NOTIFY_SOCKET"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere llama.cpp starts no debugger")
@pytest.mark.parametrize("before", ["", "sys.modules['localspec'] = sys"], ids=["ours", "control"])
def test_a_failed_assertion_of_llama_cpp_starts_no_debugger(tmp_path: Path, before: str) -> None:
    started = tmp_path / "started"
    for name in ("gdb", "lldb"):
        debugger = tmp_path / name
        debugger.write_text(f"#!/bin/sh\ntouch {started}\n")
        debugger.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GGML_")}
    done = subprocess.run(
        (sys.executable, "-c", ABORT.format(before=before)),
        env={**environment, "PATH": f"{tmp_path}{os.pathsep}{environment['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "over" in done.stderr and done.returncode < 0
    assert started.exists() == bool(before)
