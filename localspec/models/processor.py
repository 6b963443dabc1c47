"""The name of this kind of machine: speeds measured on one do not hold for another."""

from __future__ import annotations

import contextlib
import functools
import platform
from pathlib import Path

from localspec.models.builds import graphics


@functools.cache
def processor_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system reports it; Linux does so in a file only."""
    with contextlib.suppress(OSError):
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def machine_name() -> str:
    """The kind of this machine, with its graphics processors and drivers, as a key for measurements."""
    return " with ".join(filter(None, (f"{platform.machine()} {processor_name()}", graphics())))
