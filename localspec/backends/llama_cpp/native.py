"""Loading and freeing llama.cpp's own objects: the library, a model, a context.

The library's build, and the devices that a context computes on, are found by functions exported beside
llama.cpp's C interface.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp
import llama_cpp.llama_cpp as lib
import psutil

from localspec.errors import ModelInvalid, OutOfMemory
from localspec.models.gguf import GgufHeader
from localspec.models.machine import build_for
from localspec.models.needs import widest_forward, widest_round
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB

CPU = 0
KINDS = {CPU: "cpu", 1: "gpu", 2: "integrated gpu", 3: "accelerator"}
"""``enum ggml_backend_dev_type``"""
GPUS = ("gpu", "integrated gpu")
REPLAYING, SETTLING = ("CUDA", "ROCm", "MUSA"), 2
"""devices that replay the graph of forwards, by the beginning of their names, and first forwards of a width
for which they prepare it: an H100 took 5.0 ms for two tokens of a 1.5B in the first, and 2.2 in the third"""
SPARE = 512 * MB
"""bytes of a GPU's memory that no plan uses: what the driver allocates beside a model grows with use"""
GPU = "(gpu)"
"""mark in the description of a model whose layers are all on a GPU, the same for every backend"""


class ScheduledBackend(NamedTuple):
    """A backend and its device, as addresses, and the device's ``enum ggml_backend_dev_type``."""

    backend: int
    device: int
    kind: int


class Device(NamedTuple):
    """A device by its kind, one of :data:`KINDS`, and its name."""

    kind: str
    name: str


def backends_of(context: Any) -> list[ScheduledBackend]:
    """Return the backends of a context that have a device, in its order. Raises AttributeError where the
    library does not export the functions needed."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    scheduler = find_function("_ZNK13llama_context9get_schedEv", pointer, pointer)(context)
    count = find_function("ggml_backend_sched_get_n_backends", number, pointer)(scheduler)
    backend_at = find_function("ggml_backend_sched_get_backend", pointer, pointer, number)
    device_of = find_function("ggml_backend_get_device", pointer, pointer)
    type_of = find_function("ggml_backend_dev_type", number, pointer)
    backends = (backend_at(scheduler, i) for i in range(count))
    found = ((backend, device_of(backend)) for backend in backends)
    return [ScheduledBackend(backend, device, type_of(device)) for backend, device in found if device]


def find_function(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of llama.cpp's library or of a linked one; AttributeError where none exports it."""
    function = ctypes.CFUNCTYPE(result, *arguments)
    return function((name, lib._lib))


def devices_of(context: Any) -> list[Device]:
    """Return a context's devices in its order, or this machine's GPUs where the library lists none."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    name_of = find_function("ggml_backend_dev_name", text, pointer)
    description_of = find_function("ggml_backend_dev_description", text, pointer)
    try:
        found = backends_of(context)
    except AttributeError:
        return [*list_gpus().values()]
    texts = (b"%s %s" % (name_of(each.device), description_of(each.device)) for each in found)
    names = [text.decode("utf-8", "replace") for text in texts]
    return [Device(KINDS.get(each.kind, "device"), name) for each, name in zip(found, names, strict=True)]


def describe_devices(context: Any, *, layers: int, layers_on_gpu: int) -> str:
    """The devices and the library's build, for a model's description: measurements on one do not hold for
    another. A model whose layers are all on a GPU is marked with :data:`GPU`."""
    others = [device.name for device in devices_of(context) if device.kind != "cpu"]
    on = ", ".join(others) or "cpu"
    if others and layers_on_gpu >= layers:
        on = f"{on} {GPU}"
    return f"{on}, build {build()}"


def offloaded_bytes(context: Any, header: GgufHeader, config: EngineConfig) -> int:
    """Return the bytes of weights in the memory of GPUs, 0 where no device of the context is one."""
    is_gpu = any(device.kind in GPUS for device in devices_of(context))
    return header.bytes_of_last(gpu_layers(config), config.cpu_experts) if is_gpu else 0


def free_bytes(config: EngineConfig) -> int | None:
    """Return the bytes for a model in the memory of this machine's GPUs, over which llama.cpp distributes its
    layers, at most those of the settings; None where there is none, or where it is the machine's own."""
    free = room_on_gpus().values()
    return min(sum(free), config.gpu_memory_mb * MB or sum(free)) if free else None


def room_on_gpus() -> dict[int, int]:
    """Return the bytes for a model at each of this machine's GPUs with memory of their own."""
    return {device: max(0, free_of(device) - SPARE) for device in gpus()}


def free_of(device: int) -> int:
    """Return the bytes that are free at a device; 0 where its driver has given more than it may use now, by
    which Vulkan's number falls below 0, to a large one."""
    number = ctypes.c_size_t
    free, total = number(), number()
    read = find_function("ggml_backend_dev_memory", None, ctypes.c_void_p, *[ctypes.POINTER(number)] * 2)
    read(device, ctypes.byref(free), ctypes.byref(total))
    return free.value if free.value <= total.value else 0


def gpus() -> list[int]:
    """Return the addresses of this machine's GPUs with memory of their own."""
    return [each for each, device in list_gpus().items() if device.kind == "gpu"]


def list_gpus() -> dict[int, Device]:
    """Return this machine's GPUs, also integrated ones, by address."""
    initialise()
    pointer, number, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    device_at = find_function("ggml_backend_dev_get", pointer, number)
    type_of = find_function("ggml_backend_dev_type", ctypes.c_int, pointer)
    name_of = find_function("ggml_backend_dev_description", text, pointer)
    devices = [device_at(i) for i in range(find_function("ggml_backend_dev_count", number)())]
    found = {
        each: Device(KINDS.get(type_of(each), ""), name_of(each).decode("utf-8", "replace"))
        for each in devices
    }
    return {each: device for each, device in found.items() if device.kind in GPUS}


def array_of(devices: Sequence[int]) -> Any:
    """Return a C array of addresses that ends with a null."""
    return (ctypes.c_void_p * (len(devices) + 1))(*devices)


def build() -> str:
    """A hash of the library's build: its files, its compile options, and the CPU features it found here."""
    text = f"{lib.llama_print_system_info()!r} {build_for('gguf')}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


SMALL_MODEL = 32 * 1024 * 1024
"""bytes of weights"""
ALL_LAYERS = 999
NO_MEMORY = "unable to allocate"
CPU_EXPERTS = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""a layer's tensors of experts, as llama.cpp's own ``--n-cpu-moe`` names them"""
SMALLER = "Use a smaller model or quantisation, or set a smaller n_ctx or parallel."
MAPS = Path("/proc/self/maps")
SHARED = "r--s"
"""mark of a mapping that is read only and shared with its file: its pages can be read again"""
_madvise = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_recent: deque[str] = deque(maxlen=20)
_ready = threading.Lock()
_initialised = False


def _remember(_level: int, text: bytes, _data: Any) -> None:
    _recent.append(text.decode("utf-8", "replace").strip())


_log_callback = lib.llama_log_callback(_remember)


def initialise() -> None:
    """Start llama.cpp once per process; its log lines are kept for error messages, not printed."""
    global _initialised
    with _ready:
        if not _initialised:
            lib.llama_log_set(_log_callback, ctypes.c_void_p(0))
            lib.llama_backend_init()
            _initialised = True


def version() -> str:
    """The version of llama-cpp-python, which determines llama.cpp's."""
    return str(llama_cpp.__version__)


def last_error(fallback: str) -> str:
    """The newest of llama.cpp's log lines that reads like an error; ``fallback`` if there is none."""
    for line in reversed(_recent):
        if "error" in line.lower() or "fail" in line.lower():
            return line
    return fallback


class AbortFlag:
    """A flag that a context reads before every node of its graph: while it is set, ``llama_decode`` aborts.
    Its callback is C's ``strlen``, of a string that is empty until the flag is set: a Python function would
    have to wait for the interpreter's lock, hundreds of times a forward."""

    def __init__(self, context: Any) -> None:
        self._text = ctypes.create_string_buffer(2)
        strlen = ctypes.cast(ctypes.CDLL(None).strlen, lib.ggml_abort_callback)
        lib.llama_set_abort_callback(context, strlen, ctypes.cast(self._text, ctypes.c_void_p))

    def set(self, on: bool) -> None:
        """Set or clear the flag, from any thread."""
        self._text[0] = b"1" if on else b"\0"


def threads(config: EngineConfig, model: Any) -> int:
    """One thread per physical core that this process may use: more only compete for memory bandwidth. A model
    that fits in the CPU's cache gets one thread: its steps are so short that a second one mostly waits, and
    another process on that one's core stops both."""
    if config.threads:
        return config.threads
    if lib.llama_model_size(model) < SMALL_MODEL:
        return 1
    physical = psutil.cpu_count(logical=False) or 1
    usable = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else physical
    return max(1, min(physical, usable))


def gpu_layers(config: EngineConfig) -> int:
    """The most layers to put on a GPU, or on RPC servers; 0 where the library has neither."""
    if config.rpc:
        return config.gpu_layers
    if not list_gpus():
        return 0
    return config.gpu_layers if config.gpu_layers >= 0 else ALL_LAYERS


def load_model(
    path: str,
    config: EngineConfig,
    report: Callable[[float], bool] | None,
    devices: Mapping[int, int] = {},
    *,
    vocab_only: bool = False,
) -> Any:
    """Load the weights, onto these ``devices`` by their free bytes, or else onto this machine's GPUs with
    room: llama.cpp by itself puts layers on a full one, and all of them where a number has fallen below 0.
    ``vocab_only``: load no weights, for the tokenizer. ``report`` gets the loaded fraction, and ends the load
    by returning False. Raises :class:`OutOfMemory` or :class:`ModelInvalid` with llama.cpp's reason."""
    initialise()
    params = lib.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = gpu_layers(config)
    callback = lib.llama_progress_callback(lambda fraction, _: report is None or report(fraction))
    params.progress_callback = callback
    overrides = _overrides(config.cpu_experts)
    params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    if params.n_gpu_layers and not devices:
        devices = {each: room for each, room in room_on_gpus().items() if room}
    listed = array_of([*devices])
    if devices or not params.n_gpu_layers:  # with no layer on a GPU, long prompts would take its memory
        params.devices = ctypes.cast(listed, ctypes.c_void_p)
    if devices:
        # llama.cpp reads as many numbers as it can have devices.
        params.tensor_split = (ctypes.c_float * lib.llama_max_devices())(*devices.values())
    _recent.clear()
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        if lacking := next((line for line in _recent if NO_MEMORY in line), None):
            raise OutOfMemory(f"llama.cpp cannot load {path}: {lacking}", SMALLER)
        raise ModelInvalid(f"llama.cpp cannot load {path}: {last_error('no reason given')}")
    _drop_mapped()
    return model


class _Override(ctypes.Structure):
    """``struct llama_model_tensor_buft_override``: the tensors of a pattern, and the memory they go to."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


def _overrides(cpu_experts: int) -> Any:
    """Return the list, ended by an empty item, that keeps experts of the first layers in the CPU's memory."""
    memory = find_function("ggml_backend_cpu_buffer_type", ctypes.c_void_p)()
    listed = [_Override(CPU_EXPERTS.format(layer).encode(), memory) for layer in range(cpu_experts)]
    return (_Override * (len(listed) + 1))(*listed)


def _drop_mapped() -> None:
    """Take the pages of mapped files from this process; those that it still reads come back at once.
    llama.cpp copies some weights into another order, and leaves the mapped ones resident: 2.09 GB instead of
    1.36 for a model of 1.12, after an answer. A load without the mapping takes 1.4 s instead of 0.95."""
    with contextlib.suppress(OSError):  # only Linux has this file
        madvise = _madvise(("madvise", ctypes.CDLL(None)))
        for place in _of_files(MAPS.read_text(errors="replace")):
            first, end = (int(each, 16) for each in place.split("-"))
            madvise(first, end - first, mmap.MADV_DONTNEED)


def _of_files(maps: str) -> list[str]:
    """Return the places of files that are mapped to be read. A GPU's driver maps its device likewise, whose
    pages do not come back."""
    found = (line.split(maxsplit=5) for line in maps.splitlines())
    return [place for place, mode, *_, name in found if mode == SHARED and Path(name).is_file()]


def new_context(model: Any, config: EngineConfig, *, n_ctx: int, n_sequences: int, states: int = 0) -> Any:
    """Make a context whose sequences have ``n_ctx`` cells each, and keep ``states`` earlier states each if
    the model is recurrent and llama.cpp supports that; raises :class:`OutOfMemory`."""
    params = lib.llama_context_default_params()
    params.n_ctx = n_ctx * n_sequences
    params.n_batch = params.n_ubatch = widest_forward(config, n_sequences)
    params.n_outputs_max = widest_round(n_sequences)  # a row for each token of a prompt takes 315 MB, not 46
    params.n_seq_max = n_sequences
    params.n_rs_seq = states
    # With one pool of cells a row depends on the place of other sequences' cells, because attention sums
    # in the order of cells: logits moved by up to 0.17 (Q8_0). With a stream each they are bit-equal.
    params.kv_unified = False
    params.n_threads = params.n_threads_batch = threads(config, model)
    params.no_perf = True
    if config.kv_bits:
        params.type_k = params.type_v = lib.GGML_TYPE_Q8_0 if config.kv_bits == 8 else lib.GGML_TYPE_Q4_0
    context = lib.llama_init_from_model(model, params)
    if not context:
        reason = last_error("no reason given")
        raise OutOfMemory(
            f"llama.cpp cannot allocate a KV cache of {n_sequences} x {n_ctx} tokens: {reason}",
            SMALLER,
        )
    return context
