"""``python -m localspec.cli.build LOCK [ACCEL]``: compile and install the llama.cpp that ``LOCK`` pins.

It is built for ``ACCEL``, or else for the best accelerator whose device and tools are here; where that fails,
for the CPU. What localspec does not load of it is left out. Wheels are kept by their options and machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from localspec import home
from localspec.accelerator import choose_accelerator, find_accelerators, read_file
from localspec.cli import output
from localspec.errors import BackendUnavailable, ExitCode, LocalspecError
from localspec.process import python, surroundings

LEAN = Path(__file__).parents[2] / "locks" / "lean.cmake"
OPTIONS = ("LLAVA_BUILD=OFF", "GGML_RPC=ON")
PIP = python("pip", "--disable-pip-version-check")
LOCKED = ("--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation", "--require-hashes")
STEP = re.compile(r"\[(\d+)/(\d+)\]")
"""Ninja's count, at the beginning of a line"""
FEATURES = re.compile(r"^(?:flags|Features)\s*:.*", re.MULTILINE)
GPU = re.compile(r"bc(?:03|12)sc")
"""the classes of displays and of processors, in a PCI device's identifier"""
FAULT = re.compile(r"(?i:\berror: )(?!subprocess-exited)|CMake Error")
MOST_FAULTS = 4
"""lines about errors that are shown of a build that failed; CMake states the cause below its first one"""
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def install(lock: Path, wanted: str = "") -> None:
    """Install the wheel for the accelerator; raises :class:`LocalspecError`."""
    accelerator, sentence = choose_accelerator(find_accelerators(), wanted)
    output.note(sentence)
    try:
        wheel = build(lock, accelerator.options if accelerator else ())
    except BackendUnavailable as error:
        if accelerator is None:
            raise
        again = f"Install what is missing, then run `make install ACCEL={accelerator.name}`."
        output.note(f"{error.message}\nllama.cpp is built for the CPU instead. {again}")
        wheel = build(lock, ())
    if _is_installed(wheel):  # installed anew it would count as another build, of which nothing is measured
        return
    command = (*PIP, "install", "--quiet", "--force-reinstall", "--no-deps", "--no-index", str(wheel))
    if subprocess.run(command, check=False, **surroundings()).returncode:
        raise BackendUnavailable(f"{wheel} could not be installed", "Remove it, then run `make install`.")


def build(lock: Path, options: tuple[str, ...]) -> Path:
    """Return the wheel of a build with these CMake options, which is compiled if it is not kept already.
    Raises :class:`BackendUnavailable` with the first errors of the build's log."""
    defined = ";".join((*OPTIONS, *options))
    own = os.environ.get("CMAKE_ARGS", "")
    machine = (_processor(), *(_gpus() if options else ()))
    parts = "\n".join((lock.read_text(), LEAN.read_text(), defined, own, *machine))
    defined += f";CMAKE_PROJECT_llama.cpp_INCLUDE={LEAN}"
    key = hashlib.sha256(parts.encode()).hexdigest()[:12]
    folder = home.private_dir(home.cache_dir() / "builds" / key)
    if kept := next(folder.glob("*.whl"), None):
        return kept
    log, faults = folder / "build.log", list[str]()
    with (
        tempfile.TemporaryDirectory() as place,
        output.progressing("llama.cpp: downloading the source") as progress,
        log.open("w") as file,
        subprocess.Popen(
            (*PIP, "wheel", *LOCKED, "--wheel-dir", place, "--requirement", str(lock.absolute())),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **surroundings(added={"SKBUILD_CMAKE_DEFINE": defined}),
        ) as running,
    ):
        for line in running.stdout or ():
            file.write(line)
            line = COLOUR.sub("", line).strip()
            if line and len(faults) < MOST_FAULTS and (FAULT.search(line) or "CMake Error" in str(faults)):
                faults.append(line)
            if step := STEP.match(line):
                done, all_steps = map(int, step.groups())
                progress(f"llama.cpp: compiling, step {done} of {all_steps}", done / all_steps)
            elif "Configuring CMake" in line:
                progress("llama.cpp: configuring", 0.0)
        if running.wait():
            text = "\n".join((f"llama.cpp could not be compiled: {log}", *faults))
            raise BackendUnavailable(text, "Then run `make install` again.")
        (built,) = Path(place).glob("*.whl")
        return Path(shutil.copy(built, folder / f"{os.getpid()}.part")).replace(folder / built.name)


def _is_installed(wheel: Path) -> bool:
    try:
        place = metadata.distribution("llama-cpp-python").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return False
    return place is not None and json.loads(place)["url"] == wheel.as_uri()


def _gpus(bus: Path = Path("/sys/bus/pci/devices")) -> list[str]:
    """Return the GPUs by their identifiers: CUDA's and ROCm's code is compiled for those of this machine."""
    found = (read_file(each) for each in bus.glob("*/modalias"))
    return sorted(each for each in found if GPU.search(each))


def _processor() -> str:
    """Return the instruction sets of this processor, for which llama.cpp is compiled."""
    try:
        found = FEATURES.search(Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[0] if found else platform.processor()


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]), " ".join(sys.argv[2:]).strip())
    except LocalspecError as error:
        output.failure(error, as_json=False)
        sys.exit(error.exit_code)
    except OSError as error:
        remedy = "Mend that, then run `make install` again."
        output.failure(LocalspecError(f"llama.cpp could not be built: {error}", remedy), as_json=False)
        sys.exit(ExitCode.ERROR)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
