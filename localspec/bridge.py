"""``localspec bridge``: the daemon's wire as lines on stdin and stdout, for editors without WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from localspec.client import connect, discovery
from localspec.client.wire import open_socket
from localspec.errors import DaemonUnavailable, ExitCode, InvalidOptions
from localspec.protocol.handshake import LONGEST_UNPROVED

T = TypeVar("T")

STDIN, STDOUT = 0, 1
CHUNK = 1 << 16


def bridge() -> int:
    """Carry a program's messages to the daemon, one JSON-RPC message a line, and its answers back."""
    return asyncio.run(_bridge())


async def _bridge() -> int:
    socket, max_frame = await _socket()
    async with socket:
        answered = asyncio.Event()
        both = _send_all(socket, max_frame, answered), _print_all(socket, answered)
        tasks = [asyncio.create_task(each) for each in both]
        try:
            # Not both: who has said all there is to say has left, and so has a daemon that is lost.
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        try:
            await asyncio.gather(*ended)
        except ConnectionClosed as error:
            told = error.rcvd.reason if error.rcvd is not None else ""
            message = f"the daemon is gone: {told or 'connection lost'}"
            raise DaemonUnavailable(message, "The next bridge finds or starts another one.") from None
    return ExitCode.OK


async def _socket() -> tuple[ClientConnection, int]:
    """A connection on which nothing was said yet, and how long a message may be; a daemon that does not run
    is started, an outdated one replaced."""
    async with await connect(name="localspec bridge") as client:
        found = discovery.find()
        if found is None:
            raise DaemonUnavailable("the daemon ended while it was asked")
        # Over TCP, both sides prove that they know the token; connect has read it a moment ago.
        token = "" if found.socket else Path(found.token_file).read_text(encoding="ascii").strip()
        socket = await open_socket(path=found.socket, url=found.url, token=token)
        return socket, client.welcome.limits.max_frame


async def _send_all(socket: ClientConnection, max_frame: int, answered: asyncio.Event) -> None:
    """Until stdin ends; long lines after the first wait until the daemon has ``answered`` that, and so takes
    them (:mod:`localspec.protocol.handshake`)."""
    is_first = True
    async for line in _lines(max_frame):
        if not is_first and len(line) > LONGEST_UNPROVED:
            await answered.wait()
        is_first = False
        # A byte that is no text, of a file that is none, is not to end everything.
        await socket.send(line.decode(errors="replace"))


async def _lines(longest: int) -> AsyncIterator[bytes]:
    """Of stdin, without what ends them; half a line at the end is none."""
    rest = b""
    while chunk := await _on_a_thread(partial(os.read, STDIN, CHUNK)):
        *lines, rest = (rest + chunk).split(b"\n")
        if any(len(line) > longest for line in (*lines, rest)):
            raise InvalidOptions(f"a message is larger than {longest} bytes", "Send less text.")
        for line in lines:
            if line.strip():
                yield line


async def _print_all(socket: ClientConnection, answered: asyncio.Event) -> None:
    """Until the daemon is lost. While nobody reads stdout nothing is read here either, and the daemon drops
    who does not listen."""
    while True:
        frame = await socket.recv(decode=False)
        answered.set()
        await _on_a_thread(partial(_write, frame + b"\n"))


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(STDOUT, line) :]


async def _on_a_thread(function: Callable[[], T]) -> T:
    """Wait for what blocks; the program's end does not, as it would for :func:`asyncio.to_thread`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(set_value: Callable[..., None], value: object) -> None:
        if not done.done():
            set_value(value)

    def work() -> None:
        outcome: tuple[Callable[..., None], object]
        try:
            outcome = done.set_result, function()
        except OSError as error:
            outcome = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=work, daemon=True).start()
    return await done
