"""``localspec bridge`` as an editor starts it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from websockets.asyncio.client import ClientConnection

from tests.daemon.harness import INITIALIZE, Raw
from tests.waiting import soon

COMMAND = (sys.executable, "-m", "localspec", "bridge")


class Lines:
    """The bridge's two ends, as if they were a socket."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    async def send(self, text: str | bytes) -> None:
        self.stdin.write((text.encode() if isinstance(text, str) else text) + b"\n")
        await self.stdin.drain()

    async def recv(self) -> bytes:
        line = await self.stdout.readline()
        assert line.endswith(b"\n"), f"the bridge has ended: {await self.stderr.read()!r}"
        return line

    async def end(self) -> tuple[int, str]:
        """Return the exit code and stderr; nothing more may come on stdout."""
        said = await soon(self.stderr.read())
        return await soon(self.process.wait()), said.decode()


@asynccontextmanager
async def bridged(home: Path, *, initialize: bool = True) -> AsyncIterator[tuple[Raw, Lines]]:
    """A client of the daemon of ``home`` that has a bridge for a socket."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "LOCALSPEC_HOME": str(home)},
        limit=1 << 26,
    )
    lines = Lines(process)
    client = Raw(cast(ClientConnection, lines))
    try:
        if initialize:
            await client.call("init", "initialize", **INITIALIZE)
            client.seen.clear()
        yield client, lines
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
