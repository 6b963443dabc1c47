"""The devices that a context computes on, by functions exported beside llama.cpp's C interface; its build."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib

from localspec.backends.llama_cpp import native
from localspec.models.gguf import GgufHeader
from localspec.models.machine import build_for
from localspec.units import MB

CPU = 0
KINDS = {CPU: "cpu", 1: "gpu", 2: "integrated gpu", 3: "accelerator"}
"""``enum ggml_backend_dev_type``"""
GPUS = ("gpu", "integrated gpu")
SPARE = 512 * MB
"""bytes of a GPU's memory that no plan uses: a model took 110 MB more than planned on an H100, mostly logits
of 256 rows, a draft as much again, and what the driver allocates beside them grows with use"""
GPU = "(gpu)"
"""mark in the description of a model whose layers are all on a GPU, the same for every backend"""


class Scheduled(NamedTuple):
    """A backend and its device, as addresses, and the device's ``enum ggml_backend_dev_type``."""

    backend: int
    device: int
    kind: int


class Device(NamedTuple):
    """A device by its kind, one of :data:`KINDS`, and its name."""

    kind: str
    name: str


def backends_of(context: Any) -> list[Scheduled]:
    """Return the backends of a context that have a device, in its order.

    Raises AttributeError where the library does not export the functions needed.
    """
    pointer, number = ctypes.c_void_p, ctypes.c_int
    scheduler = exported("_ZNK13llama_context9get_schedEv", pointer, pointer)(context)
    count = exported("ggml_backend_sched_get_n_backends", number, pointer)(scheduler)
    backend_at = exported("ggml_backend_sched_get_backend", pointer, pointer, number)
    device_of = exported("ggml_backend_get_device", pointer, pointer)
    type_of = exported("ggml_backend_dev_type", number, pointer)
    backends = (backend_at(scheduler, i) for i in range(count))
    found = ((backend, device_of(backend)) for backend in backends)
    return [Scheduled(backend, device, type_of(device)) for backend, device in found if device]


def exported(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of llama.cpp's library or of those it is linked with.

    Raises AttributeError where it is not exported.
    """
    function = ctypes.CFUNCTYPE(result, *arguments)
    return function((name, lib._lib))


def devices_of(context: Any) -> list[Device]:
    """Return the devices that a context may use, in its order.

    Raises AttributeError where the library does not export the functions needed.
    """
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    name_of = exported("ggml_backend_dev_name", text, pointer)
    description_of = exported("ggml_backend_dev_description", text, pointer)
    return [
        Device(
            KINDS.get(each.kind, "device"),
            f"{name_of(each.device).decode('utf-8', 'replace')} "
            f"{description_of(each.device).decode('utf-8', 'replace')}",
        )
        for each in backends_of(context)
    ]


def described(context: Any, *, layers: int, layers_on_gpu: int) -> str:
    """The devices and the library's build, for a model's description: measurements on one do not hold for
    another. A model whose layers are all on a GPU is marked with :data:`GPU`."""
    others = [device.name for device in _known_devices(context) if device.kind != "cpu"]
    on = ", ".join(others) or "cpu"
    if others and layers_on_gpu >= layers:
        on = f"{on} {GPU}"
    return f"{on}, build {build()}"


def offloaded_bytes(context: Any, header: GgufHeader, layers_on_gpu: int) -> int:
    """Return the bytes of weights in the memory of GPUs, 0 where no device of the context is one."""
    is_gpu = any(device.kind in GPUS for device in _known_devices(context))
    return header.bytes_of_last(layers_on_gpu) if is_gpu else 0


def _known_devices(context: Any) -> list[Device]:
    """Return the devices of a context, or what the library supports where it does not list them."""
    try:
        return devices_of(context)
    except AttributeError:
        kind = "gpu" if lib.llama_supports_gpu_offload() else "cpu"
        return [Device(kind, "unknown device")]


def free_bytes() -> int | None:
    """Return the bytes for a model in the memory of this machine's GPUs, over which llama.cpp distributes its
    layers; None where there is none, or where it is the machine's own."""
    native.initialise()
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    sizes = (number(), number())
    try:
        device_at = exported("ggml_backend_dev_get", pointer, number)
        type_of = exported("ggml_backend_dev_type", ctypes.c_int, pointer)
        read = exported("ggml_backend_dev_memory", None, pointer, *[ctypes.POINTER(number)] * 2)
        devices = map(device_at, range(exported("ggml_backend_dev_count", number)()))
    except AttributeError:
        return None
    free = []
    for device in (each for each in devices if KINDS.get(type_of(each)) == "gpu"):
        read(device, *map(ctypes.byref, sizes))
        free.append(sizes[0].value)
    return max(0, sum(free) - SPARE) if free else None


def build() -> str:
    """A hash of the library's build: its files, its compile options, and the CPU features it found here."""
    text = f"{lib.llama_print_system_info()!r} {build_for('gguf')}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]
