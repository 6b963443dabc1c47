"""Connections without a request, or with a slow one, block no client."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection

import psutil
import pytest

from localspec.http.patience import HEAD_S, PROGRESS_S, REFUSED
from tests.http.server import SECTION, HttpServer, opened
from tests.waiting import DEADLINE_S, until_sync

pytestmark = pytest.mark.slow


def silent(echo: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", echo.port), DEADLINE_S)


@pytest.mark.parametrize("begun", [b"", b"POST /completion HTTP/1.1\r\nHost: local"])
def test_one_that_asks_nothing_is_closed(echo: HttpServer, begun: bytes) -> None:
    with silent(echo) as connection:
        connection.sendall(begun)
        assert connection.recv(1) == b""


def test_one_that_asks_again_and_again_is_kept(echo: HttpServer) -> None:
    with closing(HTTPConnection("127.0.0.1", echo.port, timeout=DEADLINE_S)) as connection:
        end = time.monotonic() + 1.5 * HEAD_S
        while time.monotonic() < end:
            connection.request("GET", "/health")
            assert connection.getresponse().read()


def test_a_body_that_does_not_come_is_not_waited_for(echo: HttpServer) -> None:
    head = f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {echo.token}\r\n"
    with silent(echo) as connection:
        connection.settimeout(2 * DEADLINE_S)
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(1024).startswith(b"HTTP/1.1 408")


def test_far_too_many_are_closed_unread(echo: HttpServer) -> None:
    with ExitStack() as stack:
        for _ in range(REFUSED):
            stack.enter_context(silent(echo))
        until_sync(lambda: connected_to(echo) == REFUSED, "all are accepted")
        with silent(echo) as further, suppress(ConnectionResetError):
            assert further.recv(1) == b""
        assert connected_to(echo) == REFUSED


def connected_to(echo: HttpServer) -> int:
    found = psutil.Process(echo.daemon.process.pid).net_connections("tcp")
    return len([each for each in found if each.status == "ESTABLISHED" and each.laddr.port == echo.port])


@pytest.mark.timeout(100)
@pytest.mark.parametrize("count", [1, 50])
def test_a_client_that_reads_nothing_is_closed(echo: HttpServer, count: int) -> None:
    """Both while an answer is being sent, and after the last one, while unread bytes delay the close."""
    body = f'{{"prompt": "{"x" * 60_000}"}}'
    head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {echo.token}\r\n"
    asked = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode() * 20
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", echo.port))
        until_sync(lambda: connected_to(echo) > 0, "it is accepted")
        connection.settimeout(1.0)
        with suppress(TimeoutError, ConnectionResetError):  # of 1,000 requests, some are not taken
            for _ in range(count):
                connection.sendall(asked)
        until_sync(lambda: connected_to(echo) == 0, "it is closed", timeout_s=4 * PROGRESS_S)


def test_requests_without_the_token_have_places_of_their_own() -> None:
    section = SECTION + 'without_token = ["openai"]\n'
    with opened(section=section, max_connections=8) as http, ExitStack() as stack:
        body = {"model": "localspec", "prompt": "stall", "stream": True}
        for _ in range(2):
            stack.enter_context(http.sent("/v1/completions", body, shown=False))
        http.until_connected(2)
        until_sync(
            lambda: http.ask("POST", "/v1/completions", body, authorization="").status_code == 429,
            "their places are taken",
        )
        assert http.post("/v1/completions", {"model": "localspec", "prompt": "Hello"})
