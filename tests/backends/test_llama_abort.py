"""A failed assertion of ggml ends its process, and starts no debugger to print a backtrace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import DEADLINE_S

DEBUGGERS = ("gdb", "lldb")
VARIABLE = "GGML_NO_BACKTRACE"
FAIL = """
import ctypes, os
import localspec
import llama_cpp.llama_cpp as lib
if {is_allowed}:
    ctypes.CDLL(None).unsetenv(b"GGML_NO_BACKTRACE")
ctypes.CDLL(None).alarm(30)
directory = os.path.join(os.path.dirname(lib.__file__), "lib")
name = next(name for name in sorted(os.listdir(directory)) if name.startswith("libggml-base"))
ctypes.CDLL(os.path.join(directory, name)).ggml_abort(b"file.c", 1, b"failed on purpose")
"""


def started(folder: Path, *, is_allowed: bool) -> bool:
    """Return True if a failed assertion starts a debugger in a process that has imported the package."""
    notes = folder / "notes"
    for name in DEBUGGERS:
        (folder / name).write_text(f'#!/bin/sh\necho "$0 $@" >> {notes}\n')
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        (sys.executable, "-P", "-c", FAIL.format(is_allowed=is_allowed)),
        env=environment | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGABRT and "failed on purpose" in done.stderr, done.stderr
    return notes.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ggml prints a backtrace by itself")
def test_a_failed_assertion_starts_no_debugger(tmp_path: Path) -> None:
    assert not started(tmp_path, is_allowed=False)
    assert started(tmp_path, is_allowed=True), "without the variable ggml starts one: the trap works"
