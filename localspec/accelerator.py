"""Accelerators that llama.cpp can be built for: the devices of this machine, and the tools of each build."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from localspec.errors import InvalidOptions

CPU = "cpu"
VENDORS = {"0x10de": "an NVIDIA GPU", "0x1002": "an AMD GPU", "0x8086": "an Intel GPU"}
"""PCI vendors of devices that compute; renderers in software and virtual displays have others, or none"""
INTEGRATED = "0000:00:02.0"
"""where Intel's integrated GPUs are, which are seldom faster than the processor beside them"""
NVIDIA_FILES = ("proc/driver/nvidia/gpus", "dev/nvidia0", "usr/lib/wsl/lib/libcuda.so.1")
CUDA_PLACES = ("usr/local/cuda/bin/nvcc", "opt/cuda/bin/nvcc")
HIP_PLACES = ("opt/rocm/bin/hipcc",)
HEADER, NEEDED = "usr/include/vulkan/vulkan_core.h", "VK_EXT_layer_settings"
"""Vulkan's header, and the newest extension in it that llama.cpp needs"""
SPIRV_PLACES = ("usr/share/cmake/SPIRV-Headers", "usr/lib/cmake/SPIRV-Headers")
PACKAGES = "docs/install.md names the packages."

Which = Callable[[str], str | None]


class Accelerator(NamedTuple):
    """``name``: its value of ACCEL; ``device``: the one of this machine; ``missing``: what its build lacks;
    both ``""`` for none; ``options``: those of CMake."""

    name: str
    title: str
    device: str
    missing: str
    options: tuple[str, ...]


def find_accelerators(
    root: Path = Path("/"), which: Which = shutil.which, variables: Mapping[str, str] = os.environ
) -> list[Accelerator]:
    """Return the accelerators of Linux, best first, by files below ``root``, and commands of the PATH."""
    devices = [file.resolve() for file in root.glob("sys/class/drm/renderD*/device")]
    files = [file / "vendor" for file in devices if file.name != INTEGRATED]
    vendors = {read_file(file).strip() for file in files}  # those on the PCI bus have one
    nvidia = VENDORS["0x10de"] if _first(root, NVIDIA_FILES) else ""
    amd = VENDORS["0x1002"] if "0x1002" in vendors and _first(root, ("dev/kfd",)) else ""
    any_gpu = next((title for vendor, title in VENDORS.items() if vendor in vendors), "")
    homes = [f"{variables[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if variables.get(name)]
    nvcc = which("nvcc") or _first(root, (*homes, *CUDA_PLACES))
    no_nvcc = "" if nvcc else "the CUDA toolkit (nvcc)"
    no_hipcc = "" if which("hipcc") or _first(root, HIP_PLACES) else "ROCm's compiler (hipcc)"
    tools = {
        "Vulkan's headers, 1.3.272 or newer": NEEDED in read_file(root / HEADER),
        "glslc": which("glslc"),
        "SPIRV-Headers": _first(root, SPIRV_PLACES),
    }
    lacking = [] if variables.get("VULKAN_SDK") else [name for name, found in tools.items() if not found]
    return [
        Accelerator("cuda", "CUDA", nvidia, no_nvcc, ("GGML_CUDA=ON", f"CMAKE_CUDA_COMPILER={nvcc}")),
        Accelerator("hip", "ROCm", amd, no_hipcc, ("GGML_HIP=ON",)),
        Accelerator("vulkan", "Vulkan", any_gpu, "; ".join(lacking), ("GGML_VULKAN=ON",)),
    ]


def _first(root: Path, places: Sequence[str]) -> str | None:
    return next((str(root / place) for place in places if os.path.exists(root / place)), None)


def read_file(file: Path) -> str:
    """Return a file's text; nothing of one that cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def choose_accelerator(found: Collection[Accelerator], wanted: str = "") -> tuple[Accelerator | None, str]:
    """Return the accelerator to build llama.cpp for, the first one with its device and tools unless one is
    ``wanted``, and None for the CPU; and a sentence with the choice, and with a better one that lacks
    tools. Raises :class:`InvalidOptions` where the wanted one is unknown, or lacks its tools."""
    by_name = {each.name: each for each in found}
    if wanted not in ("", CPU, *by_name):
        names = ", ".join((CPU, *by_name))
        raise InvalidOptions(f"ACCEL={wanted} is no accelerator", f"Choose one of: {names}.")
    here = [each for each in found if each.device]
    chosen = by_name.get(wanted) or next((each for each in here if not wanted and not each.missing), None)
    if chosen is None:
        text = "llama.cpp is built for the CPU" + ("." if here or wanted else ": no GPU was found.")
    else:
        if chosen.missing:
            remedy = f"{PACKAGES} `make install ACCEL=cpu` builds for the CPU."
            raise InvalidOptions(f"a build for {chosen.title} needs {chosen.missing}", remedy)
        text = f"llama.cpp is built for {chosen.title}: {chosen.device or 'no device was found'}."
    if here and here[0] is not chosen and not wanted:
        text += f" For {here[0].device} {describe_unused(here[0])}"
    return chosen, text


def describe_unused(accelerator: Accelerator) -> str:
    """Return the command that builds llama.cpp for a device, and what must be installed before."""
    command = f"`make install ACCEL={accelerator.name}`, or the command for pipx or uv in docs/install.md"
    if accelerator.missing:
        return f"{accelerator.title} needs {accelerator.missing}. {PACKAGES} Then run {command}."
    return f"Run {command}."


if __name__ == "__main__":  # before anything is installed
    try:
        choose_accelerator(find_accelerators(), " ".join(sys.argv[1:]).strip())
    except InvalidOptions as error:
        sys.exit(f"localspec: {error.message}. {error.remedy}")
