"""The server's process: an editor on stdin and stdout, one event loop for it and for the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal

from localspec.lsp.features import create
from localspec.lsp.server import Server
from localspec.lsp.stdio import Output, messages, open_input

STDIN, STDOUT = 0, 1
LAST_WORDS_S = 1.0


def serve() -> int:
    """Serve the editor until it ends the server; returns the exit code."""
    # Editors show stderr as errors; pygls' warning of a request that was cancelled too late is none.
    logging.getLogger("pygls").setLevel(logging.ERROR)
    return asyncio.run(_serve())


async def _serve() -> int:
    server = create()
    for fd in (STDIN, STDOUT):
        os.set_blocking(fd, True)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop, 0)
    output = Output(STDOUT, lambda: server.stop(1))
    server.protocol.set_writer(output)
    reading = asyncio.create_task(_read(server))
    try:
        return await server.ended()
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await server.link.close()
        output.drain(LAST_WORDS_S)


async def _read(server: Server) -> None:
    async for body in messages(open_input(STDIN)):
        server.protocol.receive(body)
    server.stop(0)  # the editor has gone, and nothing is wrong here
