"""The devices that a context computes on, and the build of the library that does it."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib

from localspec.backends.llama_cpp.scheduler import CPU, backends_of, exported
from localspec.models.builds import build_for

KINDS = {CPU: "cpu", 1: "gpu", 2: "integrated gpu", 3: "accelerator"}
"""``enum ggml_backend_dev_type``"""
GPU = "(gpu)"
"""mark in the description of a model whose layers are all on a GPU, the same for every backend"""


class Device(NamedTuple):
    """A device by its kind, one of :data:`KINDS`, and its name."""

    kind: str
    name: str


def devices_of(context: Any) -> list[Device]:
    """Return the devices that a context may use, in its order.

    Raises AttributeError where the library does not export the functions needed.
    """
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    name_of = exported("ggml_backend_dev_name", text, pointer)
    told_by = exported("ggml_backend_dev_description", text, pointer)
    return [
        Device(
            KINDS.get(each.kind, "device"),
            f"{name_of(each.device).decode('utf-8', 'replace')} "
            f"{told_by(each.device).decode('utf-8', 'replace')}",
        )
        for each in backends_of(context)
    ]


def described(context: Any, *, layers: int, layers_on_gpu: int) -> str:
    """The devices and the library's build, as a model's description tells them: what was measured of one
    says nothing about another. A model whose layers are all on a GPU is marked as :data:`GPU`."""
    try:
        devices = devices_of(context)
    except AttributeError:
        kind = "gpu" if lib.llama_supports_gpu_offload() else "cpu"
        devices = [Device(kind, "unknown device")]
    others = [device.name for device in devices if device.kind != "cpu"]
    on = ", ".join(others) or "cpu"
    if others and layers_on_gpu >= layers:
        on = f"{on} {GPU}"
    return f"{on}, build {build()}"


def build() -> str:
    """A name of the library's build: its files, what it was compiled for, and what it found here."""
    told = f"{lib.llama_print_system_info()!r} {build_for('gguf')}"
    return hashlib.sha256(told.encode()).hexdigest()[:8]
