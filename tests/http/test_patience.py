"""Connections without a request, or with a slow one, block no client."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection

import psutil
import pytest

from localspec.http.patience import CONNECTIONS, HEAD_S, PROGRESS_S, REFUSED
from tests.http.server import SECTION, HttpServer, opened
from tests.waiting import DEADLINE_S, until_sync

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def door() -> Iterator[HttpServer]:
    with opened() as door:
        yield door


def silent(door: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", door.port), DEADLINE_S)


@pytest.mark.parametrize("begun", [b"", b"POST /completion HTTP/1.1\r\nHost: local"])
def test_one_that_asks_nothing_is_closed(door: HttpServer, begun: bytes) -> None:
    with silent(door) as connection:
        connection.sendall(begun)
        assert connection.recv(1) == b""


def test_one_that_asks_again_and_again_is_kept(door: HttpServer) -> None:
    with closing(HTTPConnection("127.0.0.1", door.port, timeout=DEADLINE_S)) as connection:
        end = time.monotonic() + 1.5 * HEAD_S
        while time.monotonic() < end:
            connection.request("GET", "/health")
            assert connection.getresponse().read()


def test_a_body_that_does_not_come_is_not_waited_for(door: HttpServer) -> None:
    head = f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {door.token}\r\n"
    with silent(door) as connection:
        connection.settimeout(2 * DEADLINE_S)
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(1024).startswith(b"HTTP/1.1 408")


def test_there_are_but_so_many_connections_and_silent_ones_end(door: HttpServer) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(silent(door)) for _ in range(CONNECTIONS)]
        until_sync(lambda: door.ask("GET", "/health").status_code == 503, "they take all places")
        assert all(each.recv(1) == b"" for each in held), "they have asked nothing"
    assert door.ask("GET", "/health").status_code == 200
    assert "Traceback" not in door.daemon.log()


def test_far_too_many_are_closed_unread(door: HttpServer) -> None:
    with ExitStack() as stack:
        for _ in range(REFUSED):
            stack.enter_context(silent(door))
        until_sync(lambda: connected_to(door) == REFUSED, "all are accepted")
        with silent(door) as further, suppress(ConnectionResetError):
            assert further.recv(1) == b""
        assert connected_to(door) == REFUSED


def connected_to(door: HttpServer) -> int:
    """Return the connections that the HTTP server holds open."""
    found = psutil.Process(door.daemon.process.pid).net_connections("tcp")
    return len([each for each in found if each.status == "ESTABLISHED" and each.laddr.port == door.port])


@pytest.mark.timeout(100)
@pytest.mark.parametrize("count", [1, 50])
def test_who_does_not_read_is_closed(door: HttpServer, count: int) -> None:
    """Both while an answer is being sent, and after the last one, while unread bytes delay the close."""
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", door.port))
        connection.settimeout(1.0)
        with suppress(TimeoutError):
            for _ in range(count):
                connection.sendall(asked)
        until_sync(lambda: connected_to(door) > 0, "it is accepted")
        until_sync(lambda: connected_to(door) == 0, "it is closed", timeout_s=4 * PROGRESS_S)


def test_who_shows_no_token_takes_no_place_at_work_of_who_does() -> None:
    section = SECTION + 'without_token = ["openai"]\n'
    with opened(section=section, max_connections=8) as door, ExitStack() as stack:
        body = {"model": "localspec", "prompt": "stall", "stream": True}
        for _ in range(2):
            stack.enter_context(door.sent("/v1/completions", body, shown=False))
        door.until_connected(2)
        until_sync(
            lambda: door.ask("POST", "/v1/completions", body, authorization="").status_code == 429,
            "their places are taken",
        )
        assert door.post("/v1/completions", {"model": "localspec", "prompt": "Hello"})
