"""Probing a backend in a process of its own, which may crash or hang."""

from __future__ import annotations

import signal
import subprocess

import msgspec

from localspec import process
from localspec.doctor.probe import Report

PATIENCE_S = 60.0
"""seconds for a backend to load and compute one token"""


def probed(backend: str, patience: float = PATIENCE_S) -> Report:
    """The report of the probe; a crash or a hang is an error in it."""
    try:
        done = subprocess.run(
            process.python("localspec.doctor.probe", backend),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
            **process.surroundings(),
        )
    except subprocess.TimeoutExpired:
        return Report(error=f"its test did not end within {patience:.0f} s")
    except OSError as error:
        return Report(error=f"its test process cannot be started: {error.strerror}")
    if done.returncode < 0:
        name = _signal_name(-done.returncode)
        return Report(error=f"its test process was ended by {name}", signal=name)
    try:
        # The last line: native code may print, too.
        return msgspec.json.decode(done.stdout.strip().rpartition(b"\n")[2], type=Report)
    except msgspec.MsgspecError:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Report(error=f"its test process ended with {done.returncode}: {last or 'no message'}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
