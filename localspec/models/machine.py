"""This machine: its processor and driver, the builds of the libraries that run models, and its free memory.

No library is imported to find them. A measurement of one machine or build does not hold for another.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil

from localspec.accelerator import read_file
from localspec.models.model import Format

LIBRARIES: dict[Format, dict[str, str]] = {
    "gguf": {"llama_cpp": "llama-cpp-python"},
    "mlx": {"mlx": "mlx", "mlx_lm": "mlx-lm"},
}
"""the packages that run a format, and the distributions that they come in"""
NATIVE = (".so", ".dylib", ".dll", ".metallib")
DEVICES = re.compile("cuda|hip|vulkan|metal|sycl|musa|cann|opencl", re.IGNORECASE)
"""names of device libraries, as they stand in the names of native libraries"""
CONTAINER = Path("/sys/fs/cgroup")
"""the control group (version 2) of a container; outside of one it has no limit"""


def build_for(format: Format) -> str:
    """The builds of the packages that run a format, as one name."""
    return ", ".join(library_build(*each) for each in LIBRARIES[format].items())


@functools.cache
def library_build(package: str, distribution: str) -> str:
    """A name of an installed package's build: its version, and a digest of the names, sizes and times of its
    native libraries, by which builds of one version for a processor and for a GPU differ."""
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        version = "unknown"
    files = sorted(native_files(package))
    return f"{distribution} {version} {hashlib.sha256(repr(files).encode()).hexdigest()[:8]}"


def native_files(package: str) -> Iterator[tuple[str, int, int]]:
    """Name, size in bytes and time of change in ns of every native library of an installed package."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).rglob("*"):
            if any(end in path.name for end in NATIVE):
                with contextlib.suppress(OSError):
                    found = path.stat()
                    yield path.name, found.st_size, found.st_mtime_ns


@functools.cache
def has_device_code(format: Format) -> bool:
    """True if the packages that run a format came with libraries for devices, by the libraries' names."""
    files = (name for package in LIBRARIES[format] for name, *_ in native_files(package))
    return any(map(DEVICES.search, files))


@functools.cache
def processor_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system reports it; Linux does so in a file only."""
    for line in read_file(info).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


@functools.cache
def driver(nvidia: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of NVIDIA's driver, or of macOS, of which its drivers are a part; empty without either."""
    return (read_file(nvidia).splitlines() or [platform.mac_ver()[0]])[0]


def machine_name() -> str:
    """The kind of this machine and its driver, as a key for measurements."""
    return " with ".join(filter(None, (f"{platform.machine()} {processor_name()}", driver())))


def free_memory() -> int:
    """Bytes of memory that are available on this machine, or within the container's limit."""
    left = read_group_room(CONTAINER)
    available = int(psutil.virtual_memory().available)
    return available if left is None else min(available, left)


def read_group_room(group: Path) -> int | None:
    """Bytes left by the limit of a control group; None: no limit."""
    try:
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    # The kernel gives up cached files where memory is needed.
    cached = int(kept.get("active_file", 0)) + int(kept.get("inactive_file", 0))
    return max(0, limit - used + cached)
