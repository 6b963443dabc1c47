"""llama.cpp's RPC backend, which a build with ``GGML_RPC`` has.

Only a model that is given the devices of its servers uses them, never a draft model. Connecting to nothing,
and a lost connection, abort the process.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import psutil

from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.native import CPU, find_function
from localspec.errors import BackendUnavailable, NodeLost

HEADER = Path(lib.__file__).parents[1] / "include" / "ggml-rpc.h"
VERSION = re.compile(r"RPC_PROTO_(?:MAJOR|MINOR|PATCH)_VERSION +(\d+)")
KNOWN = "7"
"""the protocol's major version whose commands :mod:`localspec.ranks.rpc` sends"""
BUILD = "Install localspec by `make install`; docs/install.md has the command for pipx and uv."
KEEPALIVE = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPALIVE": 5,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 5,
    "TCP_USER_TIMEOUT": 10_000,
}
"""options by which a system gives up a connection that is cut off, in seconds, a count, and ms"""


def protocol() -> str:
    """The version of the protocol that the installed library speaks, by its header; raises
    :class:`BackendUnavailable` for one that was built without it, or for an unknown version."""
    try:
        found = VERSION.findall(HEADER.read_text())
        find_function("ggml_backend_rpc_add_server", None)
    except (OSError, AttributeError):
        raise BackendUnavailable("llama.cpp was built without RPC", BUILD) from None
    if found[:1] != [KNOWN]:
        raise BackendUnavailable(f"llama.cpp's RPC protocol is {'.'.join(found)} here, not {KNOWN}")
    return ".".join(found)


def devices(servers: Mapping[str, int]) -> dict[int, int]:
    """The devices of RPC servers, given with their free bytes by address, and this machine's GPUs, each with
    its free bytes. A server that does not answer aborts the process: see :func:`on_abort`. A server's device
    states all memory of its machine as free, where it is no GPU."""
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    add = find_function("ggml_backend_rpc_add_server", pointer, ctypes.c_char_p)
    count = find_function("ggml_backend_reg_dev_count", number, pointer)
    device_at = find_function("ggml_backend_reg_dev_get", pointer, pointer, number)
    found: dict[int, int] = {}
    for address, free in servers.items():
        registry = add(address.encode())
        if not registry or not (n := count(registry)):
            raise NodeLost(f"RPC server {address} has no devices")
        sizes = {each: native.free_of(each) for each in (device_at(registry, i) for i in range(n))}
        found |= {each: free * size // max(1, sum(sizes.values())) for each, size in sizes.items()}
    return found | {each: native.free_of(each) for each in native.gpus()}


def keep_alive(addresses: Collection[str]) -> int:
    """Have the system end this process's connections to these servers, and those that a server here accepts
    at one of them from now on, when they are cut off: the library waits for ever. Returns their number."""
    # Accepted connections inherit the options of the socket that listens.
    found = [
        each
        for each in psutil.Process().net_connections("tcp4")
        if "{}:{}".format(*(each.raddr or each.laddr)) in addresses
    ]
    for each in found:
        with socket.socket(fileno=os.dup(each.fd)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name in filter(partial(hasattr, socket), KEEPALIVE):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEPALIVE[name])
    return len(found)


def on_abort(aborted: Callable[[], None]) -> None:
    """Call ``aborted``, from any thread, when this library aborts the process, which still ends after it."""

    def call(text: bytes) -> None:
        if b"ggml-rpc" in text:
            aborted()
        os.write(2, text)

    global _on_abort
    _on_abort = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(call)
    find_function("ggml_set_abort_callback", ctypes.c_void_p, ctypes.c_void_p)(_on_abort)


_on_abort: Any = None


def server(address: str) -> Callable[[], None]:
    """A function that serves this machine's GPUs, or else its CPU, to one client after the other, and returns
    if that fails. Raises :class:`BackendUnavailable`."""
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    protocol()
    threads = psutil.cpu_count(logical=False) or 1
    found = native.gpus() or [find_function("ggml_backend_dev_by_type", pointer, ctypes.c_int)(CPU)]
    text = ctypes.c_char_p
    start = find_function("ggml_backend_rpc_start_server", None, text, text, number, number, pointer)
    return partial(start, address.encode(), None, threads, len(found), native.array_of(found))
