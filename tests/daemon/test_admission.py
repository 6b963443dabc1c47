"""Connections without a handshake: they take no places of clients."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress

import pytest

from localspec.client import connect
from localspec.daemon.listeners import HANDSHAKES
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import DaemonProcess, raw
from tests.waiting import DEADLINE_S

MOST = 4


def silent(daemon: DaemonProcess, *, tcp: bool) -> socket.socket:
    """A connection on which nothing is sent."""
    if tcp:
        return socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(DEADLINE_S)
    connection.connect(daemon.socket)
    return connection


def is_over(connection: socket.socket) -> bool:
    """Return True once the daemon has closed the connection; fails at the timeout."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "unix"])
async def test_clients_stay_and_one_socket_s_silent_connections_leave_the_other_free(
    start: StartDaemon, tcp: bool
) -> None:
    daemon = start(tcp=True, max_connections=MOST)
    async with raw(daemon) as client:
        with ExitStack() as stack:
            held = [stack.enter_context(silent(daemon, tcp=tcp)) for _ in range(2 * (MOST + HANDSHAKES))]
            assert all(map(is_over, held[MOST + HANDSHAKES :]))
            assert "result" in await client.call("asked", "session/list")
            if tcp:
                async with raw(daemon) as other:
                    assert "result" in await other.call("asked", "session/list")
        async with await connect(url=daemon.found.url, token=daemon.token) as newest:
            await newest.status()
    assert "Traceback" not in daemon.log()


@pytest.mark.slow
def test_a_client_that_stays_silent_is_closed_soon(start: StartDaemon) -> None:
    daemon = start(tcp=True)
    with silent(daemon, tcp=True) as connection:
        began = time.monotonic()
        while connection.recv(4096):
            pass
        assert time.monotonic() - began < 10.0
