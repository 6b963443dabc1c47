"""Python, the backends, and the models that come with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec._version import __version__
from localspec.doctor.finding import Finding, some
from localspec.doctor.probe import Report
from localspec.errors import INSTALL_AGAIN, INSTALL_MLX
from localspec.protocol.messages import ModelDescription

OLDEST_PYTHON = (3, 11)

AGAIN = "Install it again: pip install --force-reinstall --no-cache-dir --no-deps"
BUILD = (
    "Build it for this processor: "
    "pip install --force-reinstall --no-deps --no-binary llama-cpp-python llama-cpp-python"
)


def python(version: tuple[int, int, int], executable: str, system: str) -> Finding:
    sentence = f"localspec {__version__} on Python {'.'.join(map(str, version))} ({executable}), {system}."
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", "problem", sentence, f"Install localspec with Python {oldest} or newer.")
    return Finding("python", "ok", sentence)


def llama_cpp(report: Report, processor: str) -> Finding:
    if report.usable:
        device = f"{report.device}, {processor}" if "CPU" in report.device else report.device
        return Finding("llama_cpp", "ok", f"{report.versions} runs on {device}.")
    if report.missing:
        sentence = "llama-cpp-python is not installed: GGUF files cannot be used."
        return Finding("llama_cpp", "problem", sentence, "Install it: pip install llama-cpp-python")
    remedy = BUILD if report.signal == "SIGILL" else f"{AGAIN} llama-cpp-python"
    return Finding("llama_cpp", "problem", f"llama.cpp cannot be used: {report.error}.", remedy)


def mlx(report: Report, system: str, machine: str) -> Finding:
    """Check MLX, which exists for Apple silicon and Linux; only MLX directories need it."""
    if report.usable:
        return Finding("mlx", "ok", f"{report.versions} runs on {report.device}.")
    if not (system == "Linux" or (system, machine) == ("Darwin", "arm64")):
        return Finding("mlx", "ok", f"There is no MLX for {system} {machine}; GGUF files do not need it.")
    if report.missing:
        sentence = "MLX is not installed: model directories cannot be used, GGUF files can."
        return Finding("mlx", "warning", sentence, INSTALL_MLX)
    packages = "mlx mlx-cpu mlx-lm" if system == "Linux" else "mlx mlx-lm"
    return Finding("mlx", "problem", f"MLX cannot be used: {report.error}.", f"{AGAIN} {packages}")


def auto(usable: Mapping[str, bool], both: str, why: str) -> Finding:
    """Check the choice of backends; ``both``: the backend for models that exist in both formats."""
    runs = {backend: backend if works else "no backend" for backend, works in usable.items()}
    sentence = f"GGUF files run on {runs['llama_cpp']}, MLX directories on {runs['mlx']}"
    sentence += f"; a model in both formats runs on {both}, {why}."
    if usable[both]:
        return Finding("auto", "ok", sentence)
    other = next((backend for backend, works in usable.items() if works), None)
    remedy = f"Run `localspec config set backend {other}`, or repair {both}."
    return Finding("auto", "problem", sentence, remedy if other else "Repair one of the two backends.")


def bundled(models: Sequence[ModelDescription]) -> Finding:
    """Check the bundled pair."""
    broken = some(f"{model.id} ({model.problem})" for model in models if model.problem)
    if broken:
        return Finding("bundled", "problem", f"The bundled models are incomplete: {broken}.", INSTALL_AGAIN)
    if len({model.vocab_fp for model in models}) != 1:
        return Finding(
            "bundled", "problem", "The bundled models differ in their vocabularies.", INSTALL_AGAIN
        )
    names = " and ".join(model.id for model in models)
    sentence = f"{names} are installed, with the vocabulary {models[0].vocab_fp}."
    return Finding("bundled", "ok", sentence)
