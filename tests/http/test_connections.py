"""Connections on which an answer is under way, beside many others."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import TextIO

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from localspec.daemon.access.loopback import listen
from localspec.http import patience
from localspec.http.patience import CONNECTIONS
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
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", door.port), DEADLINE_S))
        fifo.write("second\n")
        read_until(stream, b"second")
        fifo.close()
        read_until(stream, b"[DONE]")


# --- who does not read - -------------------------------------------------------------------------------

BIG = 32
"""pieces of an answer; the kernel takes some four of them"""
PIECE = bytes(1 << 20)
LOOK_S = 0.75


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
    options = uvicorn.Config(big, http=patience.Impatient, lifespan="off", log_config=None)
    server = uvicorn.Server(options)
    with listen(0) as listening:
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


def is_stuck(server: uvicorn.Server) -> bool:
    """Return whether writing an answer is paused because the client has not read enough of it."""
    connections = server.server_state.connections
    return any(isinstance(each, patience.Impatient) and each.flow.write_paused for each in connections)


@pytest.mark.slow
def test_who_reads_nothing_is_closed(asked: tuple[socket.socket, uvicorn.Server]) -> None:
    _, server = asked
    until_sync(lambda: not server.server_state.connections, "it is closed")
