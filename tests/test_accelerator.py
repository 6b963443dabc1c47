"""Accelerators of machines whose files and commands are given, and the build that is chosen there."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.accelerator import choose_accelerator, find_accelerators
from localspec.errors import InvalidOptions

NVIDIA, AMD, INTEL, VIRTUAL, BOARD = "0x10de", "0x1002", "0x8086", "0x1af4", "no PCI vendor"
DRIVER, KFD, HIPCC = "dev/nvidia0", "dev/kfd", "opt/rocm/bin/hipcc"
HEADERS, SPIRV = "usr/include/vulkan/vulkan_core.h", "usr/share/cmake/SPIRV-Headers"
BUS = "sys/devices/pci0000:00"


def choose(root: Path, gpu: str, files: str, commands: str, wanted: str = "") -> tuple[str, str]:
    """The name of what is chosen on a machine with a ``gpu`` of a vendor, these files and commands; and the
    sentence."""
    for file in (root / each for each in files.split()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#define VK_EXT_layer_settings 1")
    if gpu:
        vendor, _, slot = gpu.partition("@")
        device, node = root / BUS / (slot or "0000:01:00.0"), root / "sys/class/drm/renderD128"
        device.mkdir(parents=True)
        if vendor != BOARD:
            (device / "vendor").write_text(f"{vendor}\n")
        node.mkdir(parents=True)
        (node / "device").symlink_to(device)
    found = find_accelerators(root, lambda name: f"/bin/{name}" if name in commands.split() else None, {})
    chosen, sentence = choose_accelerator(found, wanted)
    return chosen.name if chosen else "cpu", sentence


@pytest.mark.parametrize(
    ("gpu", "files", "commands", "name", "sentence"),
    [
        ("", "", "nvcc glslc", "cpu", "built for the CPU: no GPU was found."),
        (VIRTUAL, f"{HEADERS} {SPIRV}", "glslc", "cpu", "no GPU was found."),
        (BOARD, f"{HEADERS} {SPIRV}", "glslc", "cpu", "no GPU was found."),
        (f"{INTEL}@0000:00:02.0", f"{HEADERS} {SPIRV}", "glslc", "cpu", "no GPU was found."),
        (INTEL, f"{HEADERS} {SPIRV}", "glslc", "vulkan", "built for Vulkan: an Intel GPU."),
        ("", DRIVER, "nvcc", "cuda", "built for CUDA: an NVIDIA GPU."),
        ("", f"{DRIVER} opt/cuda/bin/nvcc", "", "cuda", "built for CUDA: an NVIDIA GPU."),
        ("", DRIVER, "", "cpu", "For an NVIDIA GPU CUDA needs the CUDA toolkit (nvcc)."),
        (NVIDIA, f"{DRIVER} {HEADERS} {SPIRV}", "glslc", "vulkan", "CUDA needs the CUDA toolkit (nvcc)."),
        (AMD, f"{KFD} {HIPCC} {HEADERS}", "", "hip", "built for ROCm: an AMD GPU."),
        (AMD, "", "", "cpu", "needs Vulkan's headers, 1.3.272 or newer; glslc; SPIRV-Headers."),
    ],
)
def test_the_best_accelerator_that_is_here_with_its_tools_is_chosen(
    tmp_path: Path, gpu: str, files: str, commands: str, name: str, sentence: str
) -> None:
    chosen = choose(tmp_path, gpu, files, commands)
    assert chosen[0] == name and sentence in chosen[1]


def test_files_that_cannot_be_read_are_as_none(tmp_path: Path) -> None:
    (tmp_path / HEADERS).mkdir(parents=True)
    (tmp_path / BUS / "0000:01:00.0/vendor").mkdir(parents=True)
    (tmp_path / "sys/class/drm/renderD128").mkdir(parents=True)
    (tmp_path / "sys/class/drm/renderD128/device").symlink_to(tmp_path / BUS / "0000:01:00.0")
    found = find_accelerators(tmp_path, lambda name: None, {})
    assert not any(each.device for each in found) and all(each.missing for each in found)


def test_one_that_is_named_is_built_or_refused_with_what_it_lacks(tmp_path: Path) -> None:
    assert choose(tmp_path, "", DRIVER, "nvcc", "cpu") == ("cpu", "llama.cpp is built for the CPU.")
    tools = f"{HEADERS} {SPIRV}"
    built = "llama.cpp is built for Vulkan: no device was found."
    assert choose(tmp_path, "", tools, "glslc", "vulkan") == ("vulkan", built)
    for wanted, why in (("hip", r"needs ROCm's compiler \(hipcc\)"), ("tpu", "ACCEL=tpu is no accelerator")):
        with pytest.raises(InvalidOptions, match=why):
            choose(tmp_path, "", tools, "glslc", wanted)
