"""``localspec bridge``: the daemon's wire as lines on stdin and stdout, for editors without WebSocket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from localspec.client import connect
from localspec.client.wire import open_socket
from localspec.errors import DaemonUnavailable, ExitCode, InvalidOptions
from localspec.thread import on_a_thread

STDIN, STDOUT = 0, 1
CHUNK = 1 << 16


def bridge() -> int:
    """Carry a program's messages to the daemon, one JSON-RPC message a line, and its answers back."""
    return asyncio.run(_bridge())


async def _bridge() -> int:
    socket, max_frame = await _socket()
    async with socket:
        both = _send_all(socket, max_frame), _print_all(socket)
        tasks = [asyncio.create_task(each) for each in both]
        try:
            # The first end of the two counts: stdin was closed, or the daemon is lost.
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        try:
            await asyncio.gather(*ended)
        except ConnectionClosed as error:
            reason = error.rcvd.reason if error.rcvd is not None else ""
            message = f"the connection to the daemon was lost{f': {reason}' if reason else ''}"
            remedy = "Start the bridge again: it finds the daemon, or starts one."
            raise DaemonUnavailable(message, remedy) from None
    return ExitCode.OK


async def _socket() -> tuple[ClientConnection, int]:
    """A fresh connection, before `initialize`, and the longest message in bytes; a daemon that does not run
    is started, an outdated one replaced."""
    async with await connect(name="localspec bridge") as client:
        return await open_socket(), client.welcome.limits.max_frame


async def _send_all(socket: ClientConnection, max_frame: int) -> None:
    """Send stdin's lines until it ends."""
    async for line in _lines(max_frame):
        # Invalid UTF-8 is replaced; an error here would end the whole connection.
        await socket.send(line.decode(errors="replace"))


async def _lines(longest: int) -> AsyncIterator[bytes]:
    """Lines of stdin without their ends; an unfinished last line is dropped."""
    rest = b""
    while chunk := await on_a_thread(partial(os.read, STDIN, CHUNK)):
        *lines, rest = (rest + chunk).split(b"\n")
        if any(len(line) > longest for line in (*lines, rest)):
            raise InvalidOptions(f"a line on stdin is longer than {longest} bytes", "Send shorter messages.")
        for line in lines:
            if line.strip():
                yield line


async def _print_all(socket: ClientConnection) -> None:
    """Write frames to stdout until the connection is lost. While stdout is not read, nothing is read from the
    daemon either, and it drops clients that do not read."""
    while True:
        await on_a_thread(partial(_write, await socket.recv(decode=False) + b"\n"))


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(STDOUT, line) :]
