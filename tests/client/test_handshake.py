"""The proof over TCP: what listens in a daemon's place gets neither the token nor a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.asyncio.client import connect as tcp_connect
from websockets.asyncio.client import unix_connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from localspec.client import connect
from localspec.client.wire import open_socket
from localspec.daemon.access.guard import nonce_of
from localspec.errors import DaemonUnavailable, Unauthorized
from localspec.protocol import jsonrpc
from localspec.protocol.handshake import (
    AUTHENTICATE,
    CHALLENGE,
    LONGEST_UNPROVED,
    NONCE_PREFIX,
    Challenge,
    new_nonce,
    proof,
)
from tests.daemon.handshake import request
from tests.daemon.harness import ECHO_DAEMON, INITIALIZE
from tests.waiting import soon

TOKEN = "ab" * 32
MIB = 1024 * 1024
MAX_FRAME = 4 * MIB
FRAMES = 20
Answer = Callable[[str, int], str | bytes | None]
"""the listener's first frame, from the client's nonce and its own port"""


def test_a_proof_is_that_of_the_documentation() -> None:
    """Other languages' clients compute the same: plugins/vscode/test/handshake.test.ts has these values."""
    told = proof(TOKEN, "daemon", 8737, "1" * 64, "2" * 64)
    assert told == "fa5d7fed9730ff60039d4ca1a22e591ba69e3697230e06052e6b15f86e779b0b"
    assert (
        proof(TOKEN, "client", 8737, "1" * 64, "2" * 64)
        == "5b0661a6b248db8a2983a455b98658b876b535f0bd6f8ecd1abc1260d2074cd8"
    )


@asynccontextmanager
async def listener(answer: Answer) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A WebSocket server whose first frame is that of ``answer``; yields its port and the frames received."""
    got: list[bytes] = []

    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        nonce = nonce_of(connection.request.headers)
        assert nonce is not None and "Authorization" not in connection.request.headers
        frame = answer(nonce, connection.local_address[1])
        if frame is not None:
            await connection.send(frame)
        try:
            while True:
                got.append(await connection.recv(decode=False))
        except ConnectionClosed:
            pass

    offered = [Subprotocol("localspec.v1")]
    async with serve(handle, "127.0.0.1", 0, subprotocols=offered, max_size=None) as server:
        yield server.sockets[0].getsockname()[1], got


def challenge(token: str, port: int, nonce: str) -> str:
    theirs = new_nonce()
    told = proof(token, "daemon", port, nonce, theirs)
    return jsonrpc.notification(CHALLENGE, Challenge(theirs, port, told))


WRONG: dict[str, Answer] = {
    "token": lambda nonce, port: challenge("cd" * 32, port, nonce),
    "nonce": lambda nonce, port: challenge(TOKEN, port, new_nonce()),
    "port": lambda nonce, port: challenge(TOKEN, port + 1, nonce),
    "digits": lambda nonce, port: challenge(TOKEN, port, nonce).replace('"proof":"', '"proof":"0'),
    "fields": lambda nonce, port: jsonrpc.notification(CHALLENGE, {"nonce": nonce, "port": port}),
    "empty": lambda nonce, port: jsonrpc.notification(CHALLENGE, None),
    "response": lambda nonce, port: jsonrpc.result(1, {}),
    "json": lambda nonce, port: "{",
    "bytes": lambda nonce, port: b"\xff",
    "long": lambda nonce, port: "x" * 100_000,
    "silent": lambda nonce, port: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
async def test_nothing_is_said_to_a_listener_without_the_right_proof(answer: Answer) -> None:
    async with listener(answer) as (port, got):
        with pytest.raises((Unauthorized, DaemonUnavailable), match="nothing was sent"):
            await soon(open_socket(url=f"ws://127.0.0.1:{port}", token=TOKEN))
    assert got == []


async def test_a_listener_with_the_proof_gets_that_of_the_client() -> None:
    theirs = "3" * 64
    asked: list[tuple[str, int]] = []

    def answer(nonce: str, port: int) -> str:
        asked.append((nonce, port))
        told = proof(TOKEN, "daemon", port, nonce, theirs)
        return jsonrpc.notification(CHALLENGE, Challenge(theirs, port, told))

    async with listener(answer) as (port, got):
        await (await open_socket(url=f"ws://127.0.0.1:{port}", token=TOKEN)).close()
    ((nonce, told_port),) = asked
    mine = proof(TOKEN, "client", told_port, nonce, theirs)
    assert got == [jsonrpc.notification(AUTHENTICATE, {"proof": mine}).encode()]


async def upgraded(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a daemon that has offered a nonce, and proved nothing."""
    host, port = url.removeprefix("ws://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request({"Sec-WebSocket-Protocol": f"localspec.v1, {NONCE_PREFIX}{'4' * 64}"}))
    assert b" 101 " in await soon(reader.readuntil(b"\r\n\r\n"))
    return reader, writer


@pytest.mark.slow
@pytest.mark.parametrize("said", ["wrong", "initialize", "nothing", "binary", "late token"])
async def test_the_daemon_answers_nobody_without_the_proof(home: Path, said: str) -> None:
    async with await connect(command=ECHO_DAEMON) as client:
        status = await client.status()
        assert status.url is not None
        reader, writer = await upgraded(status.url)
        initialize = jsonrpc.request(1, "initialize", INITIALIZE)
        frames = {
            "wrong": jsonrpc.notification(AUTHENTICATE, {"proof": "0" * 64}),
            "initialize": initialize,
            "binary": "binary",
            "late token": jsonrpc.notification(AUTHENTICATE, {"token": TOKEN}),
        }
        if said in frames:
            payload = frames[said].encode()
            kind = 0x82 if said == "binary" else 0x81
            writer.write(bytes([kind, 0x80 | 126]) + len(payload).to_bytes(2, "big") + bytes(4) + payload)
        rest = await soon(reader.read())
        assert b"$/challenge" in rest and b'"result"' not in rest and b'"error"' not in rest
        assert (1008).to_bytes(2, "big") in rest
        writer.close()
        assert (await client.status()).connections == 1


def large(size: int) -> bytes:
    """A client's frame of so many bytes."""
    return bytes([0x81, 0xFF]) + size.to_bytes(8, "big") + bytes(4) + b" " * size


@pytest.mark.slow
async def test_frames_are_small_until_the_token_is_proved(home: Path) -> None:
    """No larger one is read, let alone kept: a peer without the token takes no memory."""

    async def sent_unproved(url: str) -> None:
        reader, writer = await upgraded(url)
        try:
            for _ in range(FRAMES):
                writer.write(large(MAX_FRAME - 1))
                await soon(writer.drain())
        except ConnectionError:
            pass  # cut off in the middle of it
        else:
            raise AssertionError("all frames were taken")
        finally:
            writer.close()

    async with await connect(command=ECHO_DAEMON) as client:
        status = await client.status()
        assert status.url is not None
        daemon = psutil.Process(status.pid)
        before = daemon.memory_info().rss
        for _ in range(3):
            await asyncio.gather(*(sent_unproved(status.url) for _ in range(16)))
        grown = daemon.memory_info().rss - before
        assert grown < 16 * MIB, f"{grown / MIB:.0f} MiB more"
        reader, writer = await upgraded(status.url)
        writer.write(large(LONGEST_UNPROVED + 1)[:-LONGEST_UNPROVED])
        assert CloseCode.MESSAGE_TOO_BIG.to_bytes(2, "big") in await soon(reader.read())
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["proved", "shown", "unix"])
async def test_frames_are_large_for_who_is_let_in(home: Path, way: str) -> None:
    async with await connect(command=ECHO_DAEMON) as client:
        status, token = await client.status(), (home / "data" / "token").read_text()
        assert status.url is not None
        offered: dict[str, Any] = {"subprotocols": [Subprotocol("localspec.v1")]}
        if way == "proved":
            socket = await open_socket(url=status.url, token=token)
        elif way == "shown":
            shown = {"Authorization": f"Bearer {token}"}
            socket = await tcp_connect(status.url, proxy=None, additional_headers=shown, **offered)
        else:
            socket = await unix_connect(status.socket, **offered)
        async with socket:
            await socket.send(jsonrpc.request(1, "initialize", INITIALIZE))
            assert "result" in json.loads(await soon(socket.recv()))
            await socket.send(jsonrpc.request(2, "status/unknown", {"x": "y" * (MAX_FRAME - 1000)}))
            assert json.loads(await soon(socket.recv()))["error"]["code"] == jsonrpc.METHOD_NOT_FOUND


async def test_a_new_token_holds_at_once(home: Path) -> None:
    async with await connect(command=ECHO_DAEMON) as client:
        url, path = (await client.status()).url, home / "data" / "token"
        old = path.read_text()
        path.write_text(TOKEN)
        with pytest.raises(Unauthorized):
            await connect(url=url, token=old)
        async with await connect(url=url) as again:
            assert (await again.status()).connections == 2
