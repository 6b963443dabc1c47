"""Connections on which an answer is under way, beside many others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from localspec.http.patience import CONNECTIONS
from tests.http.server import SECTION, HttpServer, opened
from tests.waiting import DEADLINE_S

STREAM = "/v1/completions"


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServer]:
    with opened(section=SECTION + 'without_token = ["openai"]\n') as http:
        yield http


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
def under_way(http: HttpServer, folder: Path) -> Iterator[tuple[socket.socket, TextIO]]:
    """An answer begun without the token, its first line read: its connection, and the FIFO of its lines.

    The answer ends when the FIFO is closed.
    """
    os.mkfifo(lines := folder / "lines")
    with (
        http.sent(STREAM, text(f"lines {lines}"), shown=False) as stream,
        lines.open("w", buffering=1) as fifo,
    ):
        fifo.write("first\n")
        read_until(stream, b"first")
        yield stream, fifo


def test_an_answer_under_way_goes_on_beside_idle_connections(http: HttpServer, tmp_path: Path) -> None:
    """It began before them, without the token, and no request comes on its connection meanwhile."""
    with under_way(http, tmp_path) as (stream, fifo), ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", http.port), DEADLINE_S))
        fifo.write("second\n")
        read_until(stream, b"second")
        fifo.close()
        read_until(stream, b"[DONE]")
