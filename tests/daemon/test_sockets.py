"""Sockets: every way in, tried before the upgrade; silent connections take no places; ends are reported."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio import client as websockets_client
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from localspec.daemon.access import HOST, Gate, Socket, listen, refusal
from localspec.daemon.server import HANDSHAKES
from tests.client.conftest import own_home
from tests.daemon.conftest import StartDaemon
from tests.daemon.handshake import answer, request
from tests.daemon.harness import DaemonProcess, raw
from tests.waiting import DEADLINE_S, soon

TOKEN = "{token}"
BEARER = f"Bearer {TOKEN}"
WRONG = "0" * 64
FOREIGN_ORIGINS = ("http://localhost", "https://example.org", "null", "", "vscode-file://vscode-app")
FOREIGN_HOSTS = (
    *("example.org", "localhost.example.org", "127.0.0.1.example.org", "127.0.0.1@example.org"),
    *("127.0.0.2", "0.0.0.0", "localhost:8737x", "", "\xff\xfe[::", None),
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with own_home() as home:
        daemon = DaemonProcess(home, tcp=True)
        yield daemon
        assert daemon.stop() == 0, daemon.log()


def filled(daemon: DaemonProcess, headers: dict[str, str | None]) -> dict[str, str | None]:
    return {name: value and value.replace(TOKEN, daemon.token) for name, value in headers.items()}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": BEARER},
        {"Authorization": f"bearer {TOKEN}"},
        {"Sec-WebSocket-Protocol": f"localspec.v1, localspec.bearer.{TOKEN}"},
        {"Sec-WebSocket-Protocol": f"localspec.bearer.{TOKEN},localspec.v1"},
        {"Authorization": BEARER, "Host": "localhost:8737"},
        {"Authorization": BEARER, "Host": "LOCALHOST"},
        {"Authorization": BEARER, "Host": "[::1]:8737"},
        {"Authorization": BEARER, "Host": "127.0.0.1:1"},
    ],
)
def test_lets_in(daemon: DaemonProcess, headers: dict[str, str | None]) -> None:
    status, text = answer(daemon, request(filled(daemon, headers)))
    assert status == 101
    assert "Sec-WebSocket-Protocol: localspec.v1\r\n" in text
    assert daemon.token not in text
    assert "Sec-WebSocket-Extensions" not in text


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (401, {}),
        (401, {"Authorization": f"Bearer {WRONG}"}),
        (401, {"Authorization": f"Bearer {WRONG[:-1]}"}),
        (401, {"Authorization": "Bearer"}),
        (401, {"Authorization": f"Basic {TOKEN}"}),
        (401, {"Authorization": TOKEN}),
        (401, {"Authorization": "Bearer \xe9\xff"}),
        (401, {"Authorization": f"Bearer {WRONG}", "Sec-WebSocket-Protocol": f"localspec.bearer.{TOKEN}"}),
        (401, {"Sec-WebSocket-Protocol": "localspec.v1, localspec.bearer."}),
        (401, {"Sec-WebSocket-Protocol": f"localspec.v1, localspec.bearer.{WRONG}"}),
        *((403, {"Authorization": BEARER, "Origin": origin}) for origin in FOREIGN_ORIGINS),
        *((403, {"Authorization": BEARER, "Host": host}) for host in FOREIGN_HOSTS),
        (400, {"Authorization": BEARER, "Sec-WebSocket-Protocol": None}),
        (400, {"Authorization": BEARER, "Sec-WebSocket-Protocol": "localspec.v2"}),
        (400, {"Authorization": BEARER, "Sec-WebSocket-Protocol": ",;,"}),
        (400, {"Authorization": BEARER, "Sec-WebSocket-Protocol": f"localspec.bearer.{TOKEN}"}),
        (400, {"Authorization": BEARER, "Sec-WebSocket-Key": "short"}),
        (400, {"Authorization": BEARER, "Sec-WebSocket-Version": "8"}),
        (426, {"Authorization": BEARER, "Upgrade": None}),
    ],
)
def test_refuses_before_the_upgrade(
    daemon: DaemonProcess, status: int, headers: dict[str, str | None]
) -> None:
    found, text = answer(daemon, request(filled(daemon, headers)))
    assert found == status, text
    assert "Switching Protocols" not in text
    assert daemon.token not in text


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("Host", "localhost", 403), ("Origin", "localhost", 403), ("Authorization", f"Bearer {WRONG}", 401)],
)
def test_repeated_headers_are_refused(daemon: DaemonProcess, name: str, value: str, status: int) -> None:
    bearer: dict[str, str | None] = {"Authorization": f"Bearer {daemon.token}"}
    assert answer(daemon, request(bearer, (name, value)))[0] == status


def test_the_unix_socket_needs_no_token_but_takes_no_browser(daemon: DaemonProcess) -> None:
    assert answer(daemon, request({"Host": "anything"}), tcp=False)[0] == 101
    assert answer(daemon, request({"Origin": "http://localhost"}), tcp=False)[0] == 403


@pytest.mark.slow
def test_origins_can_be_allowed_one_by_one_or_all_hosts_of_a_scheme(start: StartDaemon) -> None:
    daemon = start(sections='[http]\norigins = ["https://editor.example", "tauri://*"]\n')
    allowed = ("https://editor.example", "tauri://localhost")
    for origin in (*allowed, "https://editor.example.org", "https://tauri", "tauri://"):
        status = 101 if origin in allowed else 403
        assert answer(daemon, request({"Origin": origin}), tcp=False)[0] == status, origin


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /healthz HTTP/1.1", 200),
        ("GET /metrics HTTP/1.1", 401),
        ("GET /nowhere HTTP/1.1", 404),
        ("GET /../healthz HTTP/1.1", 404),
        ("POST /healthz HTTP/1.1", 405),
        ("GET / HTTP/1.1", 401),
        ("GET / HTTP/9", 0),
        ("nonsense", 0),
    ],
)
def test_plain_http(daemon: DaemonProcess, line: str, status: int) -> None:
    assert answer(daemon, request({"Upgrade": None, "Connection": None}, line=line))[0] == status


def test_metrics_need_the_token(daemon: DaemonProcess) -> None:
    status, text = answer(
        daemon, request({"Authorization": f"Bearer {daemon.token}"}, line="GET /metrics HTTP/1.1")
    )
    assert status == 200
    assert "localspec_connections" in text


@pytest.mark.parametrize("headers", [{"Host": "example.org"}, {"Origin": "http://localhost"}])
def test_health_is_not_shown_to_browsers(daemon: DaemonProcess, headers: dict[str, str | None]) -> None:
    assert answer(daemon, request(headers, line="GET /healthz HTTP/1.1"))[0] == 403


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01" + bytes(200) + b"\r\n", b"\r\n" * 50, b"GET / HTTP/1.1\r\n: x\r\n\r\n"]
)
def test_what_is_no_http_does_no_harm(daemon: DaemonProcess, data: bytes) -> None:
    assert answer(daemon, data)[0] in (0, 400)
    assert answer(daemon, request({}, line="GET /healthz HTTP/1.1"))[0] == 200


HEADER_NAMES = ["Host", "Origin", "Authorization", "Sec-WebSocket-Protocol"]
LATIN_1 = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))


@pytest.mark.slow
@given(
    method=LATIN_1,
    path=st.one_of(LATIN_1, st.sampled_from(["/", "/healthz", "/metrics"])),
    fields=st.lists(st.tuples(st.sampled_from(HEADER_NAMES), LATIN_1), max_size=6),
)
def test_no_header_whatever_gets_in_or_raises(method: str, path: str, fields: list[tuple[str, str]]) -> None:
    refused = refusal(method, path, Headers(fields), Gate(True, lambda: WRONG, frozenset()))
    assert refused is not None
    assert 400 <= refused[0] < 500


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
        bearer, subprotocols = {"Authorization": f"Bearer {daemon.token}"}, [Subprotocol("localspec.v1")]
        async with connect(
            daemon.found.url or "", additional_headers=bearer, subprotocols=subprotocols, proxy=None
        ) as newest:
            await newest.ping()
    assert "Traceback" not in daemon.log()


@pytest.mark.slow
@pytest.mark.parametrize(("tcp", "said"), [(True, b""), (False, b"G")], ids=["tcp", "unix"])
def test_a_client_without_a_handshake_is_closed_soon(start: StartDaemon, tcp: bool, said: bytes) -> None:
    daemon = start(tcp=True)
    with silent(daemon, tcp=tcp) as connection:
        connection.sendall(said)
        began = time.monotonic()
        while connection.recv(4096):
            pass
        assert time.monotonic() - began < 10.0


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
