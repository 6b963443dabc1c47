"""Connections on which nothing comes, or slowly, keep nobody out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import psutil
import pytest

from localspec.http.patience import HEAD_S, MOST
from tests.http.door import Door, opened
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with opened() as door:
        yield door


def silent(door: Door) -> socket.socket:
    return socket.create_connection(("127.0.0.1", door.port), DEADLINE_S)


@pytest.mark.parametrize("begun", [b"", b"POST /completion HTTP/1.1\r\nHost: local"])
def test_one_that_asks_nothing_is_closed(door: Door, begun: bytes) -> None:
    with silent(door) as connection:
        connection.sendall(begun)
        assert connection.recv(1) == b""


def test_one_that_asks_again_and_again_is_kept(door: Door) -> None:
    with closing(HTTPConnection("127.0.0.1", door.port, timeout=DEADLINE_S)) as connection:
        end = time.monotonic() + 1.5 * HEAD_S
        while time.monotonic() < end:
            connection.request("GET", "/health")
            assert connection.getresponse().read()


def test_a_body_that_does_not_come_is_not_waited_for(door: Door) -> None:
    head = f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {door.token}\r\n"
    with silent(door) as connection:
        connection.settimeout(2 * DEADLINE_S)
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(1024).startswith(b"HTTP/1.1 408")


def test_above_the_most_they_are_closed_at_once_and_then_there_is_room_again(door: Door) -> None:
    (process,) = [each for each in door.daemon.workers() if "localspec.http" in each.cmdline()]
    with ExitStack() as stack:
        held = [stack.enter_context(silent(door)) for _ in range(MOST)]
        with silent(door) as one_more:
            assert one_more.recv(1) == b""
        assert all(connection.recv(1) == b"" for connection in held), "they have asked nothing"
    assert door.ask("GET", "/health").status_code == 200
    assert psutil.Process(process.pid).num_fds() < MOST / 2
    assert "Traceback" not in door.daemon.log()
