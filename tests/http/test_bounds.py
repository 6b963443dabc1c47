"""Bounds of the number of connections, and of what one request sends before anything of it is computed."""

from __future__ import annotations

import gc
import json
import select
import socket
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.requests import Request

from localspec.http.endpoint import MOST_COMMAS, BodyTooLarge, Endpoint, _read
from localspec.http.llama_cpp import CompletionBody
from localspec.http.patience import CONNECTIONS, MAX_HEAD, MAX_REQUEST, MOST_PIECES, READ
from tests.http.server import HttpServer, opened
from tests.waiting import DEADLINE_S, until_sync

CHUNKED = "POST /completion HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{}\r\n"
ONE = "1\r\nx\r\n"
SYSTEMS = 8 << 20
"""bytes that the buffers of both ends of a connection hold, and more"""


def flooded(http: HttpServer, head: str, more: str) -> tuple[bytes, int]:
    """Send a head, then ``more`` without an end; return the answer, and the number of bytes sent."""
    data, answer, sent = more.encode() * (READ // len(more)), b"", 0
    with socket.create_connection(("127.0.0.1", http.port), DEADLINE_S) as connection:
        connection.sendall(head.encode())
        with suppress(ConnectionError):
            while sent < 10 * (MAX_REQUEST + SYSTEMS):
                connection.sendall(data)
                sent += len(data)
                if select.select([connection], [], [], 0)[0]:
                    answer += connection.recv(1024)
    return answer, sent


@pytest.mark.parametrize(
    ("shown", "more", "status", "sentence"),
    [
        ("", ONE, b"401", "the token is missing"),
        ("TOKEN", ONE, b"400", f"more than {MOST_PIECES} headers and chunks"),
        ("TOKEN", f"1;{'x' * 4000}\r\nx\r\n", b"400", "bytes"),
        ("TOKEN", f"0\r\n{'a: b' * 1000}\r\n", b"400", ""),
    ],
    ids=["refused", "chunks", "extensions", "trailers"],
)
def test_a_body_without_an_end_ends_its_connection(
    echo: HttpServer, shown: str, more: str, status: bytes, sentence: str
) -> None:
    token = f"Authorization: Bearer {echo.token}\r\n" if shown else ""
    answer, sent = flooded(echo, CHUNKED.format(token), more)
    assert answer.split(b" ")[1] == status and sentence in answer.decode()
    assert sent <= 2 * MAX_REQUEST + SYSTEMS
    assert echo.ask("GET", "/health").status_code == 200


def test_a_head_without_an_end_ends_its_connection(echo: HttpServer) -> None:
    answer, sent = flooded(echo, "GET /health HTTP/1.1\r\n", "a: b\r\n")
    assert answer.split(b" ")[1] == b"400"
    assert sent <= MAX_HEAD + MAX_REQUEST + SYSTEMS


def test_after_a_refusal_a_client_that_sends_on_reads_the_answer(echo: HttpServer) -> None:
    answer = echo.ask("POST", "/completion", b'{"prompt": "' + b"x" * (3 << 20) + b'"}', authorization="")
    assert answer.status_code == 401 and "token" in answer.text


def exchanged(http: HttpServer, *parts: str) -> bytes:
    """All that the server sends for these parts, each in a packet of its own."""
    with socket.create_connection(("127.0.0.1", http.port), DEADLINE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part.encode())
            assert http.ask("GET", "/health").status_code == 200  # it was read before
        answer = b""
        with suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                answer += piece
    return answer


HEALTH = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("behind", [HEALTH, "garbage", HEALTH * 2000])
def test_what_comes_before_an_answer_ends_the_connection_with_it(echo: HttpServer, behind: str) -> None:
    answer = exchanged(echo, HEALTH + behind)
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1") == 1


def test_a_client_that_is_gone_behind_a_further_request_ends_its_work(echo: HttpServer) -> None:
    with echo.sent("/v1/completions", {"prompt": "stall"}) as connection:
        echo.until_busy()
        connection.sendall(HEALTH.encode())
    echo.until_idle()


@pytest.mark.parametrize("packets", [1, 2])
def test_another_protocol_is_answered_by_this_one(echo: HttpServer, packets: int) -> None:
    body = HEALTH + HEALTH
    head = (
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        f"Upgrade: h2c\r\nAuthorization: Bearer {echo.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = exchanged(echo, *((head + body,) if packets == 1 else (head, body)), "garbage")
    assert answer.count(b"HTTP/1.1") == 2, "the body is one, and not JSON; the garbage another"
    assert answer.startswith(b"HTTP/1.1 400") and b"not JSON" in answer


BIASED = {"prompt": "x", "logit_bias": [[1, 1.0]] * 4097}
BODIES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "commas": ("/completion", {"prompt": "," * (MOST_COMMAS + 1)}, 413, f"{MOST_COMMAS + 1} commas"),
    "texts": ("/completion", {"prompt": [""] * 30_001}, 413, "30000 texts, lists, objects"),
    "roles": ("/v1/messages", {"messages": [{"role": "user"}] * 10_000}, 413, "30000 texts"),
    "names": ("/completion", {"prompt": "x", "response_fields": ["a"] * 65}, 400, "response_fields"),
    "samplers": ("/completion", {"prompt": "x", "samplers": ["a"] * 65}, 400, "samplers"),
    "biases": ("/completion", BIASED, 400, "logit_bias"),
}


@pytest.mark.parametrize(("path", "body", "status", "sentence"), BODIES.values(), ids=BODIES)
def test_a_body_of_too_many_values_is_refused(
    echo: HttpServer, path: str, body: dict[str, Any], status: int, sentence: str
) -> None:
    answer = echo.ask("POST", path, body)
    assert answer.status_code == status and sentence in answer.text, answer.text


async def test_a_body_of_many_values_is_decoded_without_collections() -> None:
    body, seen = b'{"prompt": "a", "other": [%b]}' % b",".join([b"[]"] * (MOST_COMMAS - 1)), list[str]()
    receive = AsyncMock(return_value={"type": "http.request", "body": body, "more_body": False})
    request = Request({"type": "http"}, receive)
    gc.callbacks.append(see := lambda phase, _: seen.append(phase))
    with pytest.raises(BodyTooLarge):
        await _read(Endpoint("POST", "/", CompletionBody, AsyncMock()), request)
    gc.callbacks.remove(see)
    assert len(seen) < 10 and gc.isenabled(), "without a pause there are more than a hundred"


def test_a_whole_number_may_be_written_with_a_point(echo: HttpServer) -> None:
    seen = json.loads(echo.post("/completion", {"prompt": "options", "top_k": 40.0, "seed": 7.0})["content"])
    assert (seen["top_k"], seen["seed"]) == (40, 7)
    refused = echo.ask("POST", "/completion", {"prompt": "options", "top_k": 40.5})
    assert refused.status_code == 400 and "top_k" in refused.text


TEXTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"temperature": "nan"}),
    ("/v1/chat/completions", {"stream": "true"}),
    ("/v1/chat/completions", {"logit_bias": {"50": "1"}}),
    ("/api/chat", {"options": {"num_predict": "5"}}),
]


@pytest.mark.parametrize(("path", "said"), TEXTS, ids=str)
def test_a_text_is_no_number_and_no_truth_value(echo: HttpServer, path: str, said: dict[str, Any]) -> None:
    chat = {"model": "localspec", "messages": [{"role": "user", "content": "hello"}]}
    refused = echo.ask("POST", path, chat | said)
    assert refused.status_code == 400 and next(iter(said)) in refused.text, refused.text


def test_a_request_on_one_connection_too_many_is_refused() -> None:
    with opened() as http, ExitStack() as held:
        statuses = []
        for _ in range(CONNECTIONS):  # each is counted before the next: it has an answer
            connection = socket.create_connection(("127.0.0.1", http.port), DEADLINE_S)
            held.enter_context(connection).sendall(HEALTH.encode())
            statuses.append(connection.recv(1024).split()[1])
        assert statuses == [b"200"] * (CONNECTIONS - 1) + [b"503"]
        held.close()
        until_sync(lambda: http.ask("GET", "/health").status_code == 200, "their places are free")
        assert "Traceback" not in http.daemon.log()
