"""Connections on which an answer is under way, beside many others."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TextIO

import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from localspec.daemon.access.admission import Admission, Listening
from localspec.daemon.access.loopback import listen
from localspec.http import patience
from localspec.http.patience import PLACES
from tests.http.server import SECTION, HttpServer, opened
from tests.waiting import DEADLINE_S, until_sync

STREAM = "/v1/completions"


@pytest.fixture(scope="module")
def door() -> Iterator[HttpServer]:
    with opened(section=SECTION + 'without_token = ["openai"]\n') as door:
        yield door


def text(prompt: str) -> dict[str, object]:
    return {"model": "localspec", "prompt": prompt, "stream": True}


def read_until(connection: socket.socket, expected: bytes) -> None:
    """Read up to these bytes; an answer that ends before them fails the test."""
    read = b""
    while expected not in read:
        received = connection.recv(4096)
        assert received, f"it was closed after {read!r}"
        read += received


def idle(door: HttpServer, stack: ExitStack) -> None:
    """Open connections without a request, twice as many as there are places."""
    for _ in range(2 * PLACES["owner"]):
        stack.enter_context(socket.create_connection(("127.0.0.1", door.port), DEADLINE_S))
    until_sync(lambda: is_healthy(door), "all of them were accepted before, and the evicted ones closed")


def is_healthy(door: HttpServer) -> bool:
    """Return whether a new connection is answered; it is not while all places to close in are taken."""
    with suppress(httpx2.TransportError):
        return door.ask("GET", "/health").status_code == 200
    return False


@contextmanager
def under_way(door: HttpServer, folder: Path) -> Iterator[tuple[socket.socket, TextIO]]:
    """An answer begun without the token, its first line read: its connection, and the FIFO of its lines.

    The answer ends when the FIFO is closed.
    """
    os.mkfifo(lines := folder / "lines")
    with (
        door.sent(STREAM, text(f"lines {lines}"), shown=False) as stream,
        lines.open("w", buffering=1) as fifo,
    ):
        fifo.write("first\n")
        read_until(stream, b"first")
        yield stream, fifo


def test_an_answer_under_way_goes_on_beside_idle_connections(door: HttpServer, tmp_path: Path) -> None:
    """It began before them, without the token, and no request comes on its connection meanwhile."""
    with under_way(door, tmp_path) as (stream, fifo), ExitStack() as stack:
        idle(door, stack)
        fifo.write("second\n")
        read_until(stream, b"second")
        fifo.close()
        read_until(stream, b"[DONE]")


def test_a_connection_whose_answer_has_ended_was_used_then(door: HttpServer, tmp_path: Path) -> None:
    with under_way(door, tmp_path) as (stream, fifo), ExitStack() as stack:
        idle(door, stack)
        fifo.close()
        read_until(stream, b"[DONE]")
        stack.enter_context(socket.create_connection(("127.0.0.1", door.port), DEADLINE_S))
        assert door.ask("GET", "/health").status_code == 200
        stream.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(stream, b"200 OK")


def test_requests_that_are_not_whole_keep_nobody_out(door: HttpServer) -> None:
    """Their connections have no request at work: they give way to newer ones."""
    begun = f"POST {STREAM} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
    with ExitStack() as stack:
        for _ in range(PLACES["owner"]):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", door.port), DEADLINE_S))
            connection.sendall(begun)
        assert door.ask("GET", "/health").status_code == 200


# --- who reads slowly -------------------------------------------------------------------------------

BIG = 32
"""pieces of an answer; the kernel takes some four of them"""
PIECE = bytes(1 << 20)
LOOK_S = 0.75
LOOKS = 6


async def big(scope: Scope, receive: Receive, send: Send) -> None:
    """An application with one long answer."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(BIG):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, uvicorn.Server]]:
    """A connection on which the long answer was requested, and its server, which checks often."""
    monkeypatch.setattr(patience, "PROGRESS_S", LOOK_S)
    admission = Admission(PLACES)
    options = uvicorn.Config(big, http=patience.impatient(admission), lifespan="off", log_config=None)
    server = uvicorn.Server(options)
    with Listening.of(listen(0), admission) as listening:
        serving = Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        serving.start()
        try:
            with socket.create_connection(listening.getsockname(), DEADLINE_S) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                until_sync(lambda: is_stuck(server), "more waits than the kernel takes")
                yield connection, server
        finally:
            server.should_exit = server.force_exit = True
            serving.join(DEADLINE_S)
            admission.close()


def is_stuck(server: uvicorn.Server) -> bool:
    """Return whether writing an answer is paused because the client has not read enough of it."""
    connections = server.server_state.connections
    return any(isinstance(each, patience.Impatient) and each.flow.write_paused for each in connections)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell what was read")
def test_who_reads_slowly_is_not_closed(asked: tuple[socket.socket, uvicorn.Server]) -> None:
    """As little is read as moves nothing from the server's buffer into the kernel's."""
    connection, server = asked
    read, end = 0, time.monotonic() + LOOKS * LOOK_S
    while time.monotonic() < end:
        read += len(connection.recv(512))
        time.sleep(LOOK_S / 50)
    assert 0 < read < 1 << 20
    assert len(server.server_state.connections) == 1 and is_stuck(server)


@pytest.mark.slow
def test_who_reads_nothing_is_closed(asked: tuple[socket.socket, uvicorn.Server]) -> None:
    _, server = asked
    until_sync(lambda: not server.server_state.connections, "it is closed")
