"""Servers of llama.cpp's RPC, as a probe sees them, and the layers that they are given."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp import rpc as library
from localspec.errors import (
    BackendUnavailable,
    EngineBusy,
    InvalidOptions,
    LocalspecError,
    ModelTooLarge,
    NodeLost,
)
from localspec.models.fit import share_of
from localspec.models.gguf import GgufHeader
from localspec.models.model import model_at
from localspec.models.needs import size_of
from localspec.protocol.requests import EngineConfig
from localspec.ranks import rpc
from localspec.ranks.rpc import RpcServer, check_own_address, reach_server, share_model
from localspec.wording import MB
from tests.models.ggufs import TARGET

PRIVATE = EngineConfig()
SMALL = EngineConfig(n_ctx=256, parallel=1, rpc=("mac-b:50052",))
ANSWERS = {
    rpc.HELLO: struct.pack("<BBBx24x", 7, 0, 0),
    rpc.DEVICE_COUNT: struct.pack("<I", 2),
    rpc.GET_DEVICE_MEMORY: struct.pack("<QQ", 100 * MB, 200 * MB),
}


@contextmanager
def listening(answer: Callable[[int], bytes]) -> Iterator[str]:
    """An address, and what its server answers to a command; nothing: it closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):
                while header := connection.recv(9, socket.MSG_WAITALL):
                    command, length = struct.unpack("<BQ", header)
                    connection.recv(length, socket.MSG_WAITALL)
                    if not (body := answer(command)):
                        return
                    connection.sendall(struct.pack("<Q", len(body)) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_server_states_its_memory() -> None:
    with listening(ANSWERS.__getitem__) as address:
        server = reach_server(address, PRIVATE, "7.0.0")
    assert (server.address, server.free) == (address, 200 * MB)
    whole = struct.pack("<QQ", 200 * MB, 200 * MB)  # a machine without a GPU
    with listening({**ANSWERS, rpc.GET_DEVICE_MEMORY: whole}.__getitem__) as address:
        assert reach_server(address, PRIVATE).free == 280 * MB


def test_connections_that_are_cut_off_are_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert library.keep_alive([address]) == 1
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            assert library.keep_alive([address]) == 2
            with accepted:
                for each in (client, accepted):
                    assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 5
    assert library.keep_alive([address]) == 0


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (ANSWERS.__getitem__, InvalidOptions, "version 7.0.0 of the protocol, and this machine 6.1.0"),
        (lambda command: b"", NodeLost, "is no RPC server: it closed"),
        (lambda command: b"HTTP/1.1 400", NodeLost, "is no RPC server: an answer of 12 bytes"),
    ],
)
def test_another_protocol_is_refused_before_the_library_sees_it(
    answer: Callable[[int], bytes], error: type[LocalspecError], why: str
) -> None:
    with listening(answer) as address, pytest.raises(error, match=why):
        reach_server(address, PRIVATE, "6.1.0")


def test_a_silent_server_is_busy_and_one_that_is_not_there_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(EngineBusy, match="is silent: it serves one client at a time, and has one, or is"):
            reach_server(address, PRIVATE)
    for name in (address, "127.0.0.1:99999", "mac..b:50052"):
        with pytest.raises(NodeLost, match="no RPC server answers|cannot be found"):
            reach_server(name, PRIVATE)


def test_bytes_one_by_one_do_not_keep_it_waiting() -> None:
    client, server = socket.socketpair()
    with client, server, pytest.raises(TimeoutError):
        server.sendall(b"7")
        rpc._read(client, time.monotonic(), 2)


def test_a_public_address_is_refused_with_the_tunnel_to_use() -> None:
    with pytest.raises(InvalidOptions) as refused:
        reach_server("8.8.8.8:50052", PRIVATE)
    assert "ssh -N" in refused.value.remedy
    assert "-L 50052:127.0.0.1:50052 8.8.8.8" in refused.value.remedy
    for address in ("8.8.8.8:50052", "0.0.0.0:50052"):
        with pytest.raises(InvalidOptions, match="not an address of a private network"):
            check_own_address(address)


def test_layers_on_servers_and_those_here_are_the_whole_model() -> None:
    model = model_at(TARGET)
    assert isinstance(model.header, GgufHeader)
    whole = size_of(model, SMALL)
    assert share_of(model, EngineConfig(n_ctx=256)) == whole
    shares = [
        share_of(model, EngineConfig(n_ctx=256, rpc=SMALL.rpc, gpu_layers=n))
        for n in range(model.header.layers + 2)
    ]
    assert shares[0] == whole
    assert sorted((each.weights for each in shares), reverse=True) == [each.weights for each in shares]
    assert shares[-1].weights + model.header.bytes_of_last(len(shares)) == whole.weights
    assert shares[-1].cell == 0
    assert share_of(model, SMALL) == shares[(len(shares) - 1) // 2]


def test_servers_get_as_many_layers_as_they_have_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_at(TARGET)
    assert isinstance(model.header, GgufHeader)
    most = model.header.layers + 1

    def layers(free: int, wanted: int = -1) -> int:
        config = EngineConfig(n_ctx=256, rpc=SMALL.rpc, gpu_layers=wanted)
        return share_model(model, config, [RpcServer("b:1", "10.0.0.2:1", free, 0.001)]).gpu_layers

    assert native.gpus() == [] and [layers(0), layers(1000 * MB), layers(1000 * MB, 99)] == [0, most, most]
    assert layers(1000 * MB, 2) == 2
    assert [share_model(model, EngineConfig(rpc=("b:1",)), [], n * MB).parallel for n in (0, 1000)] == [1, 2]
    with pytest.raises(ModelTooLarge, match="2 layers of stdlib-6m .* need .* where 0.0 kB can be used"):
        layers(0, 2)
    monkeypatch.setattr(GgufHeader, "has_experts", True)
    assert share_model(model, SMALL, [], 0).cpu_experts == 0


def test_a_library_without_this_protocol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "HEADER", tmp_path / "ggml-rpc.h")
    with pytest.raises(BackendUnavailable, match="was built without RPC"):
        library.protocol()
    monkeypatch.setattr(library, "find_function", lambda *_: None)
    for number in (7, 8):
        names = ("MAJOR", "MINOR", "PATCH")
        library.HEADER.write_text("".join(f"#define RPC_PROTO_{each}_VERSION {number}\n" for each in names))
        if number == 7:
            assert library.protocol() == "7.7.7"
    with pytest.raises(BackendUnavailable, match="protocol is 8.8.8 here, not 7"):
        library.protocol()
