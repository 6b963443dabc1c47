"""The machine on which the benchmark ran, and the memory that it used."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys

import psutil

from localspec._version import __version__
from localspec.bench.results import Machine
from localspec.models.processor import processor_name

KIB = 1024
PACKAGES = ("llama-cpp-python", "mlx", "mlx-lm", "numpy")


def machine_facts(threads: int) -> Machine:
    """This machine; ``threads`` is the backend's setting."""
    versions = {"localspec": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return Machine(
        cpu=processor_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.machine()}",
        threads=threads,
        versions=versions,
    )


def peak_memory() -> int:
    """The peak memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIB
