"""The builds of the libraries that run models, and the graphics processors with their drivers: a measurement
with one does not hold for another. No library is imported to find them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from localspec.models.description import Format

LIBRARIES: dict[Format, dict[str, str]] = {
    "gguf": {"llama_cpp": "llama-cpp-python"},
    "mlx": {"mlx": "mlx", "mlx_lm": "mlx-lm"},
}
"""the packages that run a format, and the distributions that they come in"""
NATIVE = (".so", ".dylib", ".dll", ".metallib")
DEVICES = re.compile("cuda|hip|vulkan|metal|sycl|musa|cann|opencl", re.IGNORECASE)
"""names of device libraries, as they stand in the names of native libraries"""
VERSION = re.compile(r"\d+(\.\d+)+")


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
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    files = sorted(each for folder in folders or () for each in native_files(Path(folder)))
    return f"{distribution} {version} {hashlib.sha256(repr(files).encode()).hexdigest()[:8]}"


def native_files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size in bytes and time of change in ns of every native library in a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if any(end in name for end in NATIVE):
                with contextlib.suppress(OSError):
                    found = os.stat(os.path.join(parent, name))
                    yield name, found.st_size, found.st_mtime_ns


@functools.cache
def has_device_code(format: Format) -> bool:
    """True if the packages that run a format came with libraries for devices, by the libraries' names."""
    for package in LIBRARIES[format]:
        spec = find_spec(package)
        folders = spec.submodule_search_locations if spec is not None else None
        if any(DEVICES.search(name) for each in folders or () for name, *_ in native_files(Path(each))):
            return True
    return False


@functools.cache
def graphics(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> str:
    """The graphics processors and their drivers, as the system reports them; empty where it reports none.

    Drivers that are a part of the system have its version.
    """
    found = sorted({*_nvidia(proc), *_cards(sys)})
    if platform.system() == "Darwin":
        found.append(f"macOS {platform.mac_ver()[0]}")
    return ", ".join(found)


def _nvidia(proc: Path) -> Iterator[str]:
    """``/proc/driver/nvidia``, which the kernel module of NVIDIA's driver makes."""
    version = VERSION.search(_text(proc / "driver/nvidia/version"))
    for file in (proc / "driver/nvidia/gpus").glob("*/information"):
        models = (line for line in _text(file).splitlines() if line.startswith("Model:"))
        name = next(models, "Model: NVIDIA").partition(":")[2].strip()
        yield f"{name} driver {version[0] if version else 'unknown'}"


def _cards(sys: Path) -> Iterator[str]:
    """The cards of the direct rendering manager, by their numbers on the bus and their kernel modules."""
    for card in (sys / "class/drm").glob("card[0-9]"):
        ids = [_text(card / "device" / name).strip() for name in ("vendor", "device")]
        driver = os.path.basename(os.path.realpath(card / "device/driver"))
        version = _text(sys / "module" / driver / "version").strip() or platform.release()
        if all(ids):
            yield f"{':'.join(ids)} driver {driver} {version}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
