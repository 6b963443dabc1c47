"""A client's outbox: messages keep their order, and a client that does not read is found out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from localspec.daemon.access import Socket
from localspec.daemon.relay import Outbox
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import raw, texts
from tests.daemon.test_history import open_session, stored
from tests.daemon.test_streams import idle
from tests.waiting import soon, until

SOME = b'"' + b"x" * 98 + b'"'
"""a message of 100 bytes"""
FILLING = b'"' + b"filling" * 1000 + b'"'


class Pair:
    """An outbox on one side of a real connection, its reader on the other."""

    def __init__(self, server: Socket, client: ClientConnection) -> None:
        self.server = server
        self.client = client
        self.slow = 0

    def outbox(self, limit: int = 1024, patience: float = 600) -> Outbox:
        def on_slow() -> None:
            self.slow += 1

        return Outbox(self.server, limit, patience, on_slow)

    def stall(self, outbox: Outbox) -> None:
        """Fill the buffers of the sockets: the client reads nothing until :meth:`read`."""
        self.client.transport.pause_reading()
        while self.server.is_ready:
            outbox.put(FILLING)

    async def read(self, count: int) -> list[Any]:
        """The next messages, but for those that filled the buffers."""
        self.client.transport.resume_reading()
        read: list[Any] = []
        while len(read) < count:
            message = await soon(self.client.recv(decode=False))
            if message != FILLING:
                read.append(json.loads(message))
        return read


@pytest.fixture
def both() -> AbstractAsyncContextManager[Pair]:
    @asynccontextmanager
    async def pair() -> AsyncIterator[Pair]:
        accepted: asyncio.Queue[ServerConnection] = asyncio.Queue()

        async def handle(socket: ServerConnection) -> None:
            accepted.put_nowait(socket)
            await socket.wait_closed()

        made: Any = partial(Socket, made=set(), most=9)
        async with serve(handle, "127.0.0.1", 0, compression=None, create_connection=made) as server:
            port = server.sockets[0].getsockname()[1]
            async with connect(f"ws://127.0.0.1:{port}", proxy=None, close_timeout=0.1) as client:
                socket = await accepted.get()
                assert isinstance(socket, Socket)
                yield Pair(socket, client)

    return pair()


async def test_messages_keep_their_order_at_any_speed_and_none_comes_after_the_end(both: Pair) -> None:
    outbox = both.outbox(limit=1 << 20)
    outbox.put(b'"at once"')
    both.stall(outbox)
    for n in range(3):
        outbox.put(b"%d" % n)
    outbox.close()
    outbox.put(b'"too late"')
    assert not outbox.sent.is_set()
    assert await both.read(4) == ["at once", 0, 1, 2]
    await soon(outbox.sent.wait())
    both.server.write(b'"and nothing else"')
    assert await both.read(1) == ["and nothing else"]


async def test_what_waits_can_be_dropped(both: Pair) -> None:
    outbox = both.outbox()
    both.stall(outbox)
    outbox.put(b'"waits"')
    outbox.close()
    outbox.close(now=True)
    assert outbox.sent.is_set()
    both.server.write(b'"written later"')
    assert await both.read(1) == ["written later"]


async def test_a_client_is_slow_when_its_buffer_was_full_for_some_time(both: Pair) -> None:
    outbox = both.outbox(limit=100, patience=3600)
    both.stall(outbox)
    outbox.put(SOME)
    assert outbox._alarm is not None
    await both.read(1)
    assert outbox._alarm is None and both.slow == 0
    outbox = both.outbox(limit=100, patience=0.05)
    both.stall(outbox)
    outbox.put(SOME)
    await until(lambda: both.slow == 1, "the client is found slow")


async def test_far_too_much_is_found_at_once(both: Pair) -> None:
    outbox = both.outbox(limit=100)
    both.stall(outbox)
    outbox.put(b"1")
    outbox.put(b"[" + 50 * (SOME + b",") + SOME + b"]")
    assert await both.read(1) == [1] and both.slow == 0  # one answer may be as large as it is
    both.stall(outbox)
    outbox.put(50 * SOME)
    outbox.put(SOME)
    assert both.slow == 1


MIB = 1024 * 1024
CANCELLED = 'localspec_requests_total{ending="cancelled",method="generate"}'


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_dropped_and_its_requests_cancelled(start: StartDaemon) -> None:
    """Its chat as well, which would go on if the client were lost."""
    daemon = start(send_buffer=65536, slow_client_s=0.2, grace_s=600)
    async with raw(daemon) as sleeper, raw(daemon) as reader:
        session = await open_session(sleeper)
        sleeper.socket.transport.pause_reading()
        await sleeper.ask(2, "chat/send", session=session, content="flood 100000000 20")
        await sleeper.ask(1, "generate", prompt="flood 100000000 20")
        answer = await reader.call(1, "generate", prompt="flood 500 10", options={"model": "other"})
        assert texts(reader.seen, 1) == answer["result"]["text"] == "x" * 5000
        await idle(reader)
        assert stored(daemon)[1][2] == "cancelled"
        status = await reader.result(3, "daemon/status")
        assert status["resident_bytes"] < 200 * MIB
        # The request is counted a little later than its stream ends.
        while CANCELLED not in (totals := (await reader.result(4, "metrics"))["totals"]):
            pass
        assert totals[CANCELLED] == totals["localspec_slow_clients_total"] == 1
        sleeper.socket.transport.resume_reading()
        assert await sleeper.close_code() in (1006, 1013)
    assert "does not read" in daemon.log()
