"""Access to the ggml backends of a context, by functions exported beside llama.cpp's C interface."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib

CPU = 0
"""``GGML_BACKEND_DEVICE_TYPE_CPU``"""


class Scheduled(NamedTuple):
    """A backend and its device, as addresses, and the device's ``enum ggml_backend_dev_type``."""

    backend: int
    device: int
    kind: int


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
