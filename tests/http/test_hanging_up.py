"""A client that disconnects ends its request's work, whatever it is and however far it got."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.http.server import HttpServer, opened
from tests.waiting import DEADLINE_S, until_sync

CHAT = {"messages": [{"role": "user", "content": "stall"}], "model": "localspec"}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "stall"}),
    ("/completion", {"prompt": "stall"}),
    ("/infill", {"prompt": "stall"}),
    ("/api/generate", {"model": "localspec", "prompt": "stall", "raw": True}),
    ("/api/chat", CHAT),
    ("/v1/messages", CHAT),
    ("/v1/responses", {"input": "stall"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), ASKED, ids=[path for path, _ in ASKED])
def test_the_sequence_is_free_again(echo: HttpServer, path: str, body: dict[str, Any], stream: bool) -> None:
    with echo.sent(path, body | {"stream": stream}) as connection:
        if stream and path != "/infill":
            assert connection.recv(12) == b"HTTP/1.1 200"
        echo.until_busy()
    echo.until_idle()
    assert echo.ask("GET", "/health").status_code == 200


def test_tokens_of_a_model_that_is_being_loaded(echo: HttpServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    before = len(echo.daemon.workers())
    with echo.sent("/tokenize", {"content": "x", "model": f"gate:{gate}"}):
        until_sync(lambda: len(echo.daemon.workers()) > before, "it is being loaded")
        echo.until_connected(1)
    echo.until_connected(0)


def test_bodies_that_do_not_come_and_requests_without_the_token_take_no_room(echo: HttpServer) -> None:
    head = f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {echo.token}\r\n"
    with ExitStack() as stack:
        for _ in range(40):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", echo.port), DEADLINE_S))
            slow.sendall(f"{head}Content-Length: 100\r\nExpect: 100-continue\r\n\r\n".encode())
            assert slow.recv(12) == b"HTTP/1.1 100", "its body is waited for"
        assert echo.post("/completion", {"prompt": "then word"})["content"]
        for _ in range(32):
            stack.enter_context(echo.sent("/completion", {"prompt": "stall"}))
        echo.until_connected(32)
        assert "its limit of 32 requests" in echo.ask("POST", "/completion", {"prompt": "then word"}).text
        assert echo.ask("GET", "/health").status_code == 200
    echo.until_idle()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_place_of_a_request_is_free_when_its_answer_has_ended(echo: HttpServer, stream: bool) -> None:
    with ExitStack() as stack:
        for _ in range(31):
            stack.enter_context(echo.sent("/completion", {"prompt": "stall"}))
        echo.until_connected(31)
        body = json.dumps({"prompt": "then word", "stream": stream})
        connection = stack.enter_context(closing(HTTPConnection("127.0.0.1", echo.port, DEADLINE_S)))
        for _ in range(10):
            connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {echo.token}"})
            answer = connection.getresponse()
            assert answer.status == 200 and answer.read()
    echo.until_idle()


def test_one_whose_worker_is_in_a_long_step_leaves_its_place_to_others() -> None:
    with opened(max_connections=2) as http:
        with http.sent("/infill", {"model": "toy", "input_prefix": "deaf", "input_suffix": ""}):
            http.until_busy()
        body = {"model": "other", "prompt": "then word"}
        until_sync(lambda: http.ask("POST", "/completion", body).status_code == 200, "its place is free")
        assert http.running() == 1, "it goes on"


@pytest.mark.slow
def test_a_model_that_is_not_to_be_kept_goes_with_its_client(echo: HttpServer) -> None:
    body = {"model": "brief", "prompt": "stall", "raw": True, "keep_alive": 0}
    with echo.sent("/api/generate", body):
        echo.until_busy()
    until_sync(lambda: "brief" not in echo.loaded(), "it is unloaded")


def test_one_that_is_at_work_is_not_unloaded_for_others(echo: HttpServer) -> None:
    body = {"model": "brief", "prompt": "stall", "raw": True}
    with echo.sent("/api/generate", body):
        echo.until_busy()
        refused = echo.ask("POST", "/api/generate", {"model": "brief", "keep_alive": 0})
        assert refused.status_code == 429 and "brief" in echo.loaded()
    echo.until_idle()
    assert echo.post("/api/generate", {"model": "brief", "keep_alive": 0})["done_reason"] == "unload"
