"""llama.cpp's RPC backend, which its wheels lack: built from its source, and loaded beside the installed one.

The library is not registered with ggml: only a model that is given its devices uses them, never a draft
model. Connecting to nothing, and a lost connection, abort the process.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import psutil

from localspec import home
from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.native import CPU, exported
from localspec.errors import BackendUnavailable, InvalidOptions, NodeLost
from localspec.process import surroundings

COMPILER = ("-std=c++17", "-O2", "-shared", "-fPIC", "-pthread")
DEFINED = ("-DGGML_SHARED", "-DGGML_BACKEND_SHARED", "-DGGML_BACKEND_BUILD")
VERSION = re.compile(r'^__version__ = "(.+)"', re.MULTILINE)
PROTOCOL = re.compile(r"RPC_PROTO_(?:MAJOR|MINOR|PATCH)_VERSION +(\d+)")
KNOWN = "7"
"""the protocol's major version whose commands :mod:`localspec.ranks.rpc` sends"""
COMPILE_S = 600.0
BUILD = "Run `localspec rpc build`."

Aborted = Callable[[str], None]


def build(source: Path) -> Path:
    """Compile the library from the source distribution of the installed llama-cpp-python, unpacked at
    ``source``. Raises :class:`InvalidOptions` for another source, :class:`BackendUnavailable` without a
    compiler or where it fails."""
    found, wanted = _text(source / "llama_cpp" / "__init__.py", VERSION), [native.version()]
    if found != wanted:
        what = f"that of {found[0]}" if found else "no source of llama-cpp-python"
        raise InvalidOptions(f"{source} has {what}, but {wanted[0]} is installed", "Leave out --source.")
    ggml = source / "vendor" / "llama.cpp" / "ggml"
    protocol = _text(ggml / "include" / "ggml-rpc.h", PROTOCOL)
    if protocol[:1] != [KNOWN]:
        raise BackendUnavailable(f"llama.cpp's RPC protocol is {'.'.join(protocol)} there, not {KNOWN}")
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise BackendUnavailable("no C++ compiler was found (c++, or CXX)", "Install one: g++ or clang.")
    target = _place() / f"{wanted[0]}-{'.'.join(protocol)}.so"
    unfinished = target.with_suffix(".part")
    libraries = Path(lib.__file__).parent / "lib"
    base = next(libraries.glob("libggml-base.*"), None)
    if base is None:
        raise BackendUnavailable(f"there is no libggml-base in {libraries}", "Install a wheel of it.")
    sources = [str(ggml / "src" / "ggml-rpc" / name) for name in ("ggml-rpc.cpp", "transport.cpp")]
    included = (f"-I{ggml / 'include'}", f"-I{ggml / 'src'}", f"-Wl,-rpath,{base.parent}")
    command = [compiler, *COMPILER, *DEFINED, *included, *sources, str(base), "-o", str(unfinished)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMPILE_S, check=False, **surroundings())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendUnavailable(f"{compiler} failed: {error}") from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise BackendUnavailable(f"{compiler} failed: {last}", "Install a compiler for C++17.")
    unfinished.replace(target)
    return target


def _text(path: Path, pattern: re.Pattern[str]) -> list[str]:
    return pattern.findall(path.read_text(errors="replace")) if path.is_file() else []


def _place() -> Path:
    return home.private_dir(home.data_dir() / "rpc")


def built() -> tuple[Path, str]:
    """The library for the installed llama-cpp-python, and its protocol; raises :class:`BackendUnavailable`.
    One for another version is never loaded."""
    version, there = native.version(), sorted(_place().glob("*.so"))
    for path in there:
        known, _, protocol = path.stem.rpartition("-")
        if known == version:
            return path, protocol
    other = f"; {there[-1]} is for another version" if there else ""
    raise BackendUnavailable(
        f"the library for RPC servers is not built for llama-cpp-python {version}{other}", BUILD
    )


def _library() -> Any:
    path, _ = built()
    native.initialise()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BackendUnavailable(f"{path} cannot be loaded: {error}", BUILD) from None


def devices(servers: Mapping[str, int]) -> dict[int, int]:
    """The devices of RPC servers, given with their free bytes by address, and this machine's GPUs, each with
    its free bytes. A server that does not answer aborts the process: see :func:`on_abort`.

    A server's device states all memory of its machine as free, where it is no GPU.
    """
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    add = ctypes.CFUNCTYPE(pointer, ctypes.c_char_p)(("ggml_backend_rpc_add_server", _library()))
    count = exported("ggml_backend_reg_dev_count", number, pointer)
    device_at = exported("ggml_backend_reg_dev_get", pointer, pointer, number)
    found: dict[int, int] = {}
    for address, free in servers.items():
        registry = add(address.encode())
        if not registry or not (n := count(registry)):
            raise NodeLost(f"RPC server {address} has no devices")
        sizes = {each: native.free_of(each) for each in (device_at(registry, i) for i in range(n))}
        found |= {each: free * size // max(1, sum(sizes.values())) for each, size in sizes.items()}
    return found | {each: native.free_of(each) for each in native.gpus()}


def on_abort(aborted: Aborted) -> None:
    """Call ``aborted``, from any thread, with the message by which this library aborts the process, which
    still ends after it; others' go to stderr."""

    def call(text: bytes) -> None:
        message = text.decode("utf-8", "replace").strip()
        if "ggml-rpc" in message:
            aborted(message)
        os.write(2, text)

    global _on_abort
    _on_abort = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(call)
    exported("ggml_set_abort_callback", ctypes.c_void_p, ctypes.c_void_p)(_on_abort)


_on_abort: Any = None


def server(address: str) -> Callable[[], None]:
    """A function that serves this machine's GPUs, or else its CPU, to one client after the other, and returns
    if that fails. Raises :class:`BackendUnavailable`."""
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    library, threads = _library(), psutil.cpu_count(logical=False) or 1
    found = native.gpus() or [exported("ggml_backend_dev_by_type", pointer, ctypes.c_int)(CPU)]
    start = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, number, number, pointer)(
        ("ggml_backend_rpc_start_server", library)
    )
    return partial(start, address.encode(), None, threads, len(found), native.array_of(found))
