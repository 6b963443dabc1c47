"""Faults of clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from tests.daemon.handshake import request, text_frame
from tests.daemon.harness import Raw, code, raw
from tests.slow.scene import LONG, QUESTION, SHORT, Scene


async def version_differs(scene: Scene, client: Raw) -> None:
    async with raw(scene.daemon, initialize=False) as old:
        refused = await old.call(1, "initialize", protocol=2, client={"name": "new", "version": "9"}, more=1)
        assert code(refused) == "version_skew" and "2" in refused["error"]["message"]
        assert code(await old.call(2, "daemon/status")) == "not_initialized"


async def client_does_not_read(scene: Scene, client: Raw) -> None:
    """Request much, and read none of it: the client is dropped, and its request cancelled."""
    wire = socket.socket(socket.AF_UNIX)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    wire.connect(scene.daemon.socket)
    wire.sendall(request({}))
    wire.sendall(text_frame(0, "initialize", protocol=1, client={"name": "deaf", "version": "0"}))
    before = await dropped(client)
    for id in range(1, 9):
        wire.sendall(text_frame(id, "generate", prompt=QUESTION, options=LONG))
    with contextlib.closing(wire):
        async with asyncio.timeout(15):
            while await dropped(client) == before:
                await asyncio.sleep(0.02)
        await running(client, at_most=1)


async def dropped(client: Raw) -> float:
    """Return the number of clients that the daemon dropped because they did not read."""
    totals = (await client.call("metrics", "metrics"))["result"]["totals"]
    count: float = totals["localspec_slow_clients_total"]
    return count


async def client_vanishes(scene: Scene, client: Raw) -> None:
    """Is cut off in the middle of its answers."""
    async with raw(scene.daemon) as lost:
        await scene.begin(lost)
        lost.socket.transport.abort()
    await running(client, at_most=1)


async def running(client: Raw, *, at_most: int) -> None:
    """Wait until no more requests than the bystander's are left."""
    async with asyncio.timeout(15):
        while (await client.call("status", "daemon/status"))["result"]["running"] > at_most:
            await asyncio.sleep(0.02)


async def client_is_silent(scene: Scene, client: Raw) -> None:
    """Connect, and send nothing, or half of a handshake."""
    words = scene.rng.choice((b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"))
    silent = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    try:
        for wire in silent:
            wire.connect(scene.daemon.socket)
            wire.sendall(words)
        await scene.answer(client, "beside", SHORT)
    finally:
        for wire in silent:
            wire.close()


HOSTILE: tuple[str | bytes, ...] = (
    "{",
    "[]",
    "[" * 100_000,
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"zoom": 1}}',
    '{"jsonrpc": "2.0", "id": 1e400, "method": "generate"}',
    '{"jsonrpc": "2.0", "id": 1, "method": "models/load", "params": {"keep_alive_s": 1e999}}',
    '{"jsonrpc": "2.0", "id": 1, "method": "' + "x" * 100_000 + '"}',
    "\0",
    b"\x00\xff",
    "x" * (5 << 20),
)


async def frames_are_hostile(scene: Scene, client: Raw) -> None:
    """The client gets an error, or its connection is closed with a code."""
    # The client library trips over itself when it is cut off while it sends: AttributeError.
    with contextlib.suppress(AttributeError):
        async with raw(scene.daemon) as hostile:
            await say_something_hostile(scene, hostile)


async def say_something_hostile(scene: Scene, hostile: Raw) -> None:
    said = scene.rng.choice(HOSTILE)
    with contextlib.suppress(ConnectionError):
        await hostile.say(said)
    if isinstance(said, bytes) or len(said) > 4 << 20:
        assert await hostile.close_code() in (1003, 1009)
    else:
        assert "error" in await hostile.next()


async def cancels_storm(scene: Scene, client: Raw) -> None:
    """Every request is cancelled as soon as it is sent, or a moment later: each has one answer."""
    for id in range(24):
        await client.ask(id, "generate", prompt=QUESTION, options=LONG)
        if scene.rng.random() < 0.5:
            await scene.moment()
        await client.notify("$/cancelRequest", id=id)
    for id in range(24):
        assert (await client.response(id))["result"]["finish_reason"] == "cancelled"
