"""llama.cpp's RPC servers, which hold layers of a GGUF model: reached, planned with, and served.

A server answers one client at a time, and nothing at all to a second one. What connects to nothing, or loses
its connection, is aborted by llama.cpp's library; the system gives up connections that are cut off.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from localspec.errors import EngineBusy, ExitCode, InvalidOptions, NodeLost
from localspec.models.fit import divide_model
from localspec.models.machine import free_memory
from localspec.models.model import Model
from localspec.models.needs import context_size
from localspec.protocol.requests import EngineConfig
from localspec.ranks.peer import Lost

CONNECT_S = 5.0
GET_DEVICE_MEMORY, HELLO, DEVICE_COUNT = 11, 14, 15
CAPABILITIES = bytes(24)
"""what a client offers beside TCP: nothing"""
REQUEST, LENGTH = struct.Struct("<BQ"), struct.Struct("<Q")
VERSION, COUNT, MEMORY = struct.Struct("<BBBx24x"), struct.Struct("<I"), struct.Struct("<QQ")
MOST_DEVICES = 64
USABLE = 0.9
"""share of a server's free memory that is planned with"""
FREE_OF_ALL = 0.7
"""share of all memory of a machine without a GPU that is taken as free: its server states no other number"""
LISTENS_S = 0.05
REMEDY = (
    "Make sure that machine runs and is reached, then send the request again: all servers are asked "
    "anew. To go on without them: `localspec config set rpc --unset`."
)
TUNNEL = "ssh -N -o ServerAliveInterval=2 -o ServerAliveCountMax=2 -L {port}:127.0.0.1:{port} {host}"


class RpcServer(NamedTuple):
    """A server at ``address``, by its number; ``seconds``: a request there and back."""

    name: str
    address: str
    free: int
    seconds: float


def reach_server(name: str, config: EngineConfig, protocol: str | None = None) -> RpcServer:
    """The server of this name. Raises :class:`NodeLost` where none answers, :class:`EngineBusy` for one that
    is silent, and :class:`InvalidOptions` for an address that is not allowed, or another ``protocol``."""
    address = _check_address(name, config)
    try:
        with socket.create_connection(_place(address), CONNECT_S) as connection:
            call = partial(_call, connection, time.monotonic() + CONNECT_S)
            found = ".".join(map(str, VERSION.unpack(call(HELLO, CAPABILITIES, VERSION.size))))
            if protocol is not None and found != protocol:
                what = (
                    f"RPC server {name} speaks version {found} of the protocol, and this machine {protocol}"
                )
                raise InvalidOptions(what, "Install the same version of llama-cpp-python on all machines.")
            started = time.perf_counter()
            (count,) = COUNT.unpack(call(DEVICE_COUNT, b"", COUNT.size))
            seconds = time.perf_counter() - started
            devices = map(COUNT.pack, range(min(count, MOST_DEVICES)))
            sizes = [MEMORY.unpack(call(GET_DEVICE_MEMORY, each, MEMORY.size)) for each in devices]
    except TimeoutError:  # also of the connection: the system holds only two further clients
        raise EngineBusy(
            f"RPC server {name} is silent: it serves one client at a time, and has one, or is stopped",
            "Unload the model that uses it, here or there (`localspec models unload`), or start it again.",
        ) from None
    except OSError as error:
        raise NodeLost(
            f"no RPC server answers at {name}: {error}", f"Run `localspec rpc serve {name}` there."
        ) from None
    except ValueError as error:
        raise NodeLost(f"what listens at {name} is no RPC server: {error}", REMEDY) from None
    free = sum(free if free < total else int(FREE_OF_ALL * total) for free, total in sizes)
    return RpcServer(name, address, free, seconds)


def _check_address(name: str, config: EngineConfig) -> str:
    """The address of a name, which stays the same for the library."""
    host, _, port = name.rpartition(":")
    try:
        found, number, *_ = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        if number != int(port):
            raise ValueError(f"{port} is no port")
    except (OSError, ValueError) as error:  # ValueError also of a part of the name that is too long
        raise NodeLost(f"RPC server {name} cannot be found: {error}", REMEDY) from None
    if not (ipaddress.ip_address(found).is_private or config.rpc_public):
        tunnel = TUNNEL.format(host=host, port=port)
        raise InvalidOptions(
            f"{name} is no address of a private network, and an RPC server has no authentication",
            f"Serve 127.0.0.1:{port} there, run `{tunnel}` here, and set rpc to 127.0.0.1:{port}.",
        )
    return f"{found}:{int(port)}"


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _call(connection: socket.socket, until: float, command: int, request: bytes, answer: int) -> bytes:
    """A request's answer, of ``answer`` bytes, ``until`` a time of :func:`time.monotonic`; raises OSError, or
    ValueError for one of another size."""
    connection.sendall(REQUEST.pack(command, len(request)) + request)
    (length,) = LENGTH.unpack(_read(connection, until, LENGTH.size))
    if length != answer:
        raise ValueError(f"an answer of {length} bytes")
    return _read(connection, until, answer)


def _read(connection: socket.socket, until: float, length: int) -> bytes:
    data = b""
    while len(data) < length:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        if not (more := connection.recv(length - len(data))):
            raise ValueError("it closed the connection")
        data += more
    return data


def share_model(
    model: Model, config: EngineConfig, servers: Sequence[RpcServer], here: int | None = None
) -> EngineConfig:
    """The settings with the number of layers for these servers and this machine's GPUs, and as many sequences
    as have room there and in ``here`` bytes, None: all that are free; see :func:`divide_model`. Experts stay
    with their layers unless they are set: otherwise each layer would send its tokens here and back. The
    context is not lowered."""
    from localspec.backends.llama_cpp import native

    n_ctx = context_size(model.description.context, config)
    config = replace(config, cpu_experts=max(0, config.cpu_experts), n_ctx=n_ctx)
    free = int(USABLE * sum(each.free for each in servers)) + (native.free_bytes(config) or 0)
    return divide_model(model, config, free, free_memory() if here is None else here)


def prepare_model(
    model: Model, config: EngineConfig, lost: Lost, here: int | None
) -> tuple[EngineConfig, dict[str, int]]:
    """Reach the servers of a GGUF model, and return the settings to load it with, and the bytes that are free
    at the servers' addresses. ``lost`` is called, from any thread, with the error by which a server was lost,
    before llama.cpp aborts this process. Raises as :func:`reach_server` and :func:`share_model`."""
    from localspec.backends.llama_cpp import rpc

    protocol = rpc.protocol()
    by_address = {
        each.address: each for each in (reach_server(name, config, protocol) for name in config.rpc)
    }
    servers = [*by_address.values()]
    planned = share_model(model, config, servers, here)
    names = " or ".join(each.name for each in servers)
    rpc.on_abort(partial(lost, NodeLost(f"the connection to RPC server {names} broke", REMEDY)))
    return planned, {each.address: each.free for each in servers}


def serve(address: str, show: Callable[[str, str], None]) -> None:
    """Serve this machine's GPUs, or else its CPU, at ``HOST:PORT``, until Ctrl-C; ``show`` gets the address,
    and the command of a tunnel to it. Raises :class:`InvalidOptions` and :class:`BackendUnavailable`."""
    from localspec.backends.llama_cpp import rpc

    run = rpc.server(address)
    check_own_address(address)

    def serving() -> None:
        run()
        os._exit(ExitCode.ERROR)  # it has said why

    thread = threading.Thread(target=serving, daemon=True)
    thread.start()
    while not rpc.keep_alive([address]):  # before it listens
        time.sleep(LISTENS_S)
    show(address, TUNNEL.format(host="THIS-MACHINE", port=_place(address)[1]))
    thread.join()


def check_own_address(address: str) -> None:
    """Raise :class:`InvalidOptions` unless ``HOST:PORT`` of a private network can be listened at."""
    host, _, port = address.rpartition(":")
    remedy = "Give an address of this machine in a private network, such as 192.168.1.7:50052."
    try:
        place, number = ipaddress.ip_address(host), int(port)
    except ValueError:
        raise InvalidOptions(f"{address} is not a numeric address with a port", remedy) from None
    if place.is_unspecified or not place.is_private:
        raise InvalidOptions(f"{host} is not an address of a private network", remedy)
    try:
        socket.create_server((host, number)).close()
    except (OSError, OverflowError) as error:
        raise InvalidOptions(f"{address} cannot be listened at: {error}", remedy) from None
