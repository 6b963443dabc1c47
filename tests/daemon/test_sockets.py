"""Sockets: handshakes and their refusals; silent connections take no places; ends are reported."""

from __future__ import annotations

import asyncio
import socket
import stat
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio import client as websockets_client
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from localspec.daemon.access import HOST, Socket, listen, read_or_create
from localspec.daemon.server import HANDSHAKES
from tests.daemon.conftest import StartDaemon
from tests.daemon.handshake import answer, request
from tests.daemon.harness import DaemonProcess, raw
from tests.waiting import DEADLINE_S, soon


@pytest.mark.parametrize(
    "headers", [{}, {"Host": "anything"}, {"Sec-WebSocket-Protocol": "another,localspec.v1"}]
)
def test_lets_in(daemon: DaemonProcess, headers: dict[str, str | None]) -> None:
    status, text = answer(daemon, request(headers))
    assert status == 101
    assert "Sec-WebSocket-Protocol: localspec.v1\r\n" in text
    assert "Sec-WebSocket-Extensions" not in text


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        *((403, {"Origin": origin}) for origin in ("http://localhost", "null", "")),
        *((400, {"Sec-WebSocket-Protocol": protocol}) for protocol in (None, "localspec.v2")),
    ],
)
def test_refuses_before_the_upgrade(
    daemon: DaemonProcess, status: int, headers: dict[str, str | None]
) -> None:
    found, text = answer(daemon, request(headers))
    assert found == status, text
    assert "Switching Protocols" not in text


def test_repeated_origins_are_refused(daemon: DaemonProcess) -> None:
    assert answer(daemon, request({"Origin": "null"}, ("Origin", "null")))[0] in (400, 403)


@pytest.mark.parametrize("data", [b"\x16\x03\x01" + bytes(200) + b"\r\n", b"nonsense\r\n\r\n"])
def test_what_is_no_http_does_no_harm(daemon: DaemonProcess, data: bytes) -> None:
    assert answer(daemon, data)[0] in (0, 400)
    assert answer(daemon, request({}))[0] == 101


MOST = 4


def silent(daemon: DaemonProcess) -> socket.socket:
    """A connection on which nothing is sent."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(DEADLINE_S)
    connection.connect(daemon.socket)
    return connection


def is_over(connection: socket.socket) -> bool:
    """Return True once the daemon has closed the connection; fails at the timeout."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


async def test_clients_stay_and_silent_connections_keep_their_places_for_a_while(start: StartDaemon) -> None:
    daemon = start(max_connections=MOST)
    async with raw(daemon) as client:
        with ExitStack() as stack:
            held = [stack.enter_context(silent(daemon)) for _ in range(2 * (MOST + HANDSHAKES))]
            assert all(map(is_over, held[MOST + HANDSHAKES :]))
            assert "result" in await client.call("asked", "session/list")
        async with raw(daemon) as newest:
            assert "result" in await newest.call("asked", "session/list")
    assert "Traceback" not in daemon.log()


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"G"])
def test_a_client_without_a_handshake_is_closed_soon(start: StartDaemon, said: bytes) -> None:
    with silent(start()) as connection:
        connection.sendall(said)
        began = time.monotonic()
        while connection.recv(4096):
            pass
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("damage", ["chmod 644", "short", "empty"])
def test_a_token_that_was_open_or_damaged_is_replaced(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "http-token"
    token = read_or_create(path)
    assert read_or_create(path) == token
    if damage == "chmod 644":
        path.chmod(0o644)
    else:
        path.write_text("" if damage == "empty" else token[:32])
    new = read_or_create(path)
    assert new != token and len(new) == 64 and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_connections_send_at_once() -> None:
    with listen(0) as listening, socket.create_connection(listening.getsockname()) as client:
        accepted, (host, _) = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert host == HOST == client.getpeername()[0]


def test_a_port_that_is_taken_is_refused() -> None:
    with listen(0) as listening, pytest.raises(OSError, match="in use"):
        listen(listening.getsockname()[1])


MUCH = "x" * 20_000_000
"""more than the buffers of the system take"""


async def test_a_sender_learns_that_the_client_is_gone() -> None:
    """Over one that was closed with something still to be written, which then was written."""
    accepted: asyncio.Queue[ServerConnection] = asyncio.Queue()
    over = asyncio.Event()
    made: Any = partial(Socket, made=set(), most=2)

    async def handle(socket: ServerConnection) -> None:
        accepted.put_nowait(socket)
        await over.wait()

    async with serve(handle, "127.0.0.1", 0, compression=None, create_connection=made) as server:
        port = server.sockets[0].getsockname()[1]
        async with websockets_client.connect(f"ws://127.0.0.1:{port}", proxy=None, max_size=None) as client:
            socket = await accepted.get()
            client.transport.pause_reading()
            sending = asyncio.create_task(socket.send(MUCH))
            await asyncio.sleep(0)
            socket.transport.close()
            client.transport.resume_reading()
            await soon(client.recv())
            await soon(sending)
            await soon(socket.wait_closed())
            with pytest.raises(ConnectionClosed):
                await socket.send("x")
            over.set()
