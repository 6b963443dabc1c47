"""Python, and the backends: each is tried in a process of its own, which may crash or hang."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator

import msgspec

from localspec import process
from localspec._version import __version__
from localspec.accelerator import Accelerator, describe_unused
from localspec.doctor import Finding
from localspec.doctor.probe import CPU, Report
from localspec.errors import INSTALL_MLX
from localspec.models.machine import processor_name

AGAIN = "Install it again: pip install --force-reinstall --no-cache-dir --no-deps"
BUILD = "Build it anew: `make install`, or the command for pipx or uv in docs/install.md."
LATE = f"Run `localspec doctor` again: a GPU's driver may compile its programs at the first use. {BUILD}"
PATIENCE_S = 60.0
"""seconds for a backend to load and compute one token"""


def python() -> Iterator[Finding]:
    place = f"Python {platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}"
    yield Finding("python", "ok", f"localspec {__version__} on {place}.")


def llama_cpp(report: Report, accelerators: Collection[Accelerator]) -> Iterator[Finding]:
    if report.usable:
        device = f"{CPU}, {processor_name()}" if report.device == CPU else report.device
        yield Finding("llama_cpp", "ok", f"{report.versions} runs on {device}.")
        unused = next((each for each in accelerators if each.device and report.device == CPU), None)
        if unused is not None:
            sentence = f"There is {unused.device} here, which llama.cpp does not use."
            yield Finding("llama_cpp", "warning", sentence, describe_unused(unused))
    elif report.missing:
        sentence = "llama-cpp-python is not installed: GGUF files cannot be used."
        yield Finding("llama_cpp", "problem", sentence, "Install it: pip install llama-cpp-python")
    else:
        remedy = LATE if "did not end" in report.error else BUILD
        yield Finding("llama_cpp", "problem", f"llama.cpp cannot be used: {report.error}.", remedy)


def mlx(
    report: Report, system: str = platform.system(), machine: str = platform.machine()
) -> Iterator[Finding]:
    """Check MLX, which exists for Apple silicon and Linux; only MLX directories need it."""
    if report.usable:
        yield Finding("mlx", "ok", f"{report.versions} runs on {report.device}.")
    elif not (system == "Linux" or (system, machine) == ("Darwin", "arm64")):
        yield Finding("mlx", "ok", f"There is no MLX for {system} {machine}; GGUF files do not need it.")
    elif report.missing:
        sentence = "MLX is not installed: model directories cannot be used, GGUF files can."
        yield Finding("mlx", "warning", sentence, INSTALL_MLX)
    else:
        packages = "mlx mlx-cpu mlx-lm" if system == "Linux" else "mlx mlx-lm"
        yield Finding("mlx", "problem", f"MLX cannot be used: {report.error}.", f"{AGAIN} {packages}")


def probe_backend(backend: str, patience: float = PATIENCE_S) -> Report:
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
    if done.returncode < 0:
        return Report(error=f"its test process was ended by {signal.Signals(-done.returncode).name}")
    try:
        # The last line: native code may print, too.
        return msgspec.json.decode(done.stdout.strip().rpartition(b"\n")[2], type=Report)
    except msgspec.MsgspecError:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Report(error=f"its test process ended with {done.returncode}: {last or 'no message'}")
