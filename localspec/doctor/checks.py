"""What facts mean: a sentence each, and what mends it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from localspec._version import __version__
from localspec.doctor.finding import Finding
from localspec.doctor.probe import Report
from localspec.errors import INSTALL_MLX
from localspec.protocol.messages import ModelDescription

OLDEST_PYTHON = (3, 11)
MIB = 1024 * 1024
GIB = 1024 * MIB
LOW_MEMORY = 512 * MIB
SHOWN_BROKEN = 3

AGAIN = "Install it again: pip install --force-reinstall --no-cache-dir --no-deps"
BUILD = (
    "Build it for this processor: "
    "pip install --force-reinstall --no-deps --no-binary llama-cpp-python llama-cpp-python"
)


def python(version: tuple[int, int, int], executable: str, system: str) -> Finding:
    told = f"localspec {__version__} on Python {'.'.join(map(str, version))} ({executable}), {system}."
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", "problem", told, f"Install localspec with Python {oldest} or newer.")
    return Finding("python", "ok", told)


def llama_cpp(report: Report, processor: str) -> Finding:
    if report.usable:
        device = f"{report.device}, {processor}" if "CPU" in report.device else report.device
        return Finding("llama_cpp", "ok", f"{report.versions} computes on {device}.")
    if report.missing:
        told = "llama-cpp-python is not installed: GGUF files cannot be used."
        return Finding("llama_cpp", "problem", told, "Install it: pip install llama-cpp-python")
    remedy = BUILD if report.signal == "SIGILL" else f"{AGAIN} llama-cpp-python"
    return Finding("llama_cpp", "problem", f"llama.cpp cannot be used: {report.error}.", remedy)


def mlx(report: Report, system: str, machine: str) -> Finding:
    """MLX exists for Apple silicon and Linux, and nothing but MLX directories needs it."""
    if report.usable:
        return Finding("mlx", "ok", f"{report.versions} computes on {report.device}.")
    if not (system == "Linux" or (system, machine) == ("Darwin", "arm64")):
        return Finding("mlx", "ok", f"There is no MLX for {system} {machine}; GGUF files do not need it.")
    if report.missing:
        told = "MLX is not installed: model directories cannot be used, GGUF files can."
        return Finding("mlx", "warning", told, INSTALL_MLX)
    packages = "mlx mlx-cpu mlx-lm" if system == "Linux" else "mlx mlx-lm"
    return Finding("mlx", "problem", f"MLX cannot be used: {report.error}.", f"{AGAIN} {packages}")


def auto(usable: Mapping[str, bool], both: str, why: str) -> Finding:
    """``both`` is the backend for models that are there in both formats."""
    runs = {backend: backend if works else "no backend" for backend, works in usable.items()}
    told = f"GGUF files run on {runs['llama_cpp']}, MLX directories on {runs['mlx']}"
    told += f"; a model that is there as both runs on {both}, {why}."
    if usable[both]:
        return Finding("auto", "ok", told)
    other = next((backend for backend, works in usable.items() if works), None)
    remedy = f'Set backend = "{other}" under [options] in config.toml, or mend {both}.'
    return Finding("auto", "problem", told, remedy if other else "Mend one of the two backends.")


def bundled(models: Sequence[ModelDescription]) -> Finding:
    """The bundled pair, each in both formats."""
    mend = "Install localspec again: pip install --force-reinstall --no-deps localspec"
    broken = _broken(models)
    if broken:
        return Finding("bundled", "problem", f"The bundled models are incomplete: {broken}.", mend)
    if len({model.vocab_fp for model in models}) != 1:
        return Finding("bundled", "problem", "The bundled models differ in their vocabularies.", mend)
    names = " and ".join(dict.fromkeys(model.id for model in models))
    formats = " and ".join(dict.fromkeys(model.format for model in models))
    told = f"{names} are there as {formats}, with the vocabulary {models[0].vocab_fp}."
    return Finding("bundled", "ok", told)


def model_dir(folder: Path, models: Sequence[ModelDescription], config: Path) -> Finding:
    """A directory of ``model_dirs``, and what is in there."""
    mend = f"Make the directory, or mend model_dirs in {config}."
    if not folder.is_dir():
        what = "is no directory" if os.path.lexists(folder) else "is not there"
        return Finding("model_dirs", "warning", f"{folder} {what}.", mend)
    if not os.access(folder, os.R_OK | os.X_OK):
        return Finding("model_dirs", "warning", f"{folder} cannot be read.", f"Run chmod u+rx '{folder}'.")
    if not models:
        told, step = f"{folder} holds no models.", "Put GGUF files or MLX directories there."
        return Finding("model_dirs", "warning", told, step)
    found = f"{folder} holds {len(models)} model{'s' * (len(models) > 1)}"
    broken = _broken(models)
    if broken:
        step = "Download what is broken again, or remove it."
        return Finding("model_dirs", "warning", f"{found}; broken: {broken}.", step)
    return Finding("model_dirs", "ok", f"{found}.")


def _broken(models: Iterable[ModelDescription]) -> str:
    broken = [f"{model.id} ({model.problem})" for model in models if model.problem]
    more = [f"and {len(broken) - SHOWN_BROKEN} more"] if len(broken) > SHOWN_BROKEN else []
    return ", ".join(broken[:SHOWN_BROKEN] + more)


NO_MODEL_DIRS = Finding("model_dirs", "ok", "None are configured: models of your own go by their paths.")


def memory(available: int, total: int) -> Finding:
    told = f"{available / GIB:.1f} of {total / GIB:.1f} GiB of memory are free."
    if available < LOW_MEMORY:
        step = "Close other programs, or use a smaller model and a smaller n_ctx."
        return Finding("memory", "warning", told, step)
    return Finding("memory", "ok", told)


def homes(places: Mapping[str, Path]) -> Finding:
    """Directories that were found to be usable."""
    parents = {path.parent for path in places.values()}
    if len(parents) == 1:
        told = f"{', '.join(places)} in {parents.pop()}"
    else:
        told = ", ".join(f"{kind} in {path}" for kind, path in places.items())
    return Finding("home", "ok", f"Writable, and yours alone: {told}.")


def daemon(version: str, pid: int) -> Finding:
    """A daemon that answers."""
    if version != __version__:
        told = f"The daemon (pid {pid}) is localspec {version}, this command is {__version__}."
        return Finding("daemon", "warning", told, "Restart it: localspec daemon stop")
    return Finding("daemon", "ok", f"The daemon runs (pid {pid}, localspec {version}).")


NO_DAEMON = Finding("daemon", "ok", "No daemon runs; the first command that needs one starts it.")


def silent_daemon(pid: int) -> Finding:
    """One that has said where it listens, and does not."""
    return Finding("daemon", "problem", f"The daemon (pid {pid}) does not answer.", f"End it: kill -9 {pid}")
