"""A socket that is closed already can be cut off once more."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from localspec.daemon.access.transport import Socket
from tests.waiting import soon

MUCH = "x" * 20_000_000
"""more than the buffers of the system take"""


async def test_who_sends_is_told_that_the_client_is_gone() -> None:
    """Over one that was closed with something still to be written, which then was written."""
    accepted: asyncio.Queue[ServerConnection] = asyncio.Queue()
    over = asyncio.Event()
    made: Any = partial(Socket, made=set(), most=2)

    async def handle(socket: ServerConnection) -> None:
        accepted.put_nowait(socket)
        await over.wait()

    async with serve(handle, "127.0.0.1", 0, compression=None, create_connection=made) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", proxy=None, max_size=None) as client:
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
