"""The cost of a request by HTTP, beside the same one on the daemon's wire.

    python -m assets.bench.http_cost [--requests 100]

Requests for one token after a short prompt go to a daemon of its own in turn: on a wire that is kept open, on
a new one, by HTTP on a connection that is kept open, and on a new one; and requests for ``/health``, which
need no model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from pathlib import Path

from localspec.client import Client, connect
from localspec.protocol.options import Options

PROMPT = "def fib(n):\n"
CONFIG = "[daemon]\nport = 0\n[http]\nenabled = true\nport = 0\n"
MEASURED_S = 4.0
"""seconds in which the daemon measures the model after its first request, while idle"""

Send = Callable[[], Awaitable[None]]


async def tokens(client: Client) -> None:
    await client.generate(PROMPT, raw=True, options=Options(max_tokens=1, temperature=0.0)).result()


class HttpServer:
    """A minimal client of the daemon's HTTP server."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"}
        self.kept = self.connection()

    def connection(self) -> HTTPConnection:
        return HTTPConnection(self._address)

    def tokens(self, connection: HTTPConnection) -> None:
        body = json.dumps({"prompt": PROMPT, "n_predict": 1, "temperature": 0})
        self._send(connection, "POST", "/completion", body)

    def health(self) -> None:
        self._send(self.kept, "GET", "/health")

    def _send(self, connection: HTTPConnection, method: str, path: str, body: str | None = None) -> None:
        connection.request(method, path, body, self._headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(content.decode())


async def address_of(client: Client) -> str:
    """Wait for the HTTP server; return its address."""
    while (url := (await client.status()).http) is None:
        await asyncio.sleep(0.05)
    return url.removeprefix("http://")


async def measure(requests: int) -> dict[str, list[float]]:
    """Milliseconds by kind of request and connection."""
    token = localspec("daemon", "token").strip()
    async with await connect(start=False, name="bench") as kept:
        server = HttpServer(await address_of(kept), token)

        async def new_wire() -> None:
            async with await connect(start=False, name="bench") as client:
                await tokens(client)

        async def new_http() -> None:
            await asyncio.to_thread(server.tokens, server.connection())

        kinds: dict[str, Send] = {
            "wire, kept open": lambda: tokens(kept),
            "wire, a new connection": new_wire,
            "HTTP, kept open": lambda: asyncio.to_thread(server.tokens, server.kept),
            "HTTP, a new connection": new_http,
            "HTTP, /health": lambda: asyncio.to_thread(server.health),
        }
        took: dict[str, list[float]] = {name: [] for name in kinds}
        await tokens(kept)
        await asyncio.sleep(MEASURED_S)
        for _ in range(requests):
            for name, send in kinds.items():
                began = time.perf_counter()
                await send()
                took[name].append(1000 * (time.perf_counter() - began))
        return took


def localspec(*words: str) -> str:
    command = (sys.executable, "-m", "localspec", *words)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a request by HTTP.")
    parser.add_argument("--requests", type=int, default=100)
    requests = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as home:
        os.environ["LOCALSPEC_HOME"] = home
        (Path(home) / "config").mkdir()
        (Path(home) / "config" / "config.toml").write_text(CONFIG)
        localspec("daemon", "start")
        try:
            took = asyncio.run(measure(requests))
        finally:
            localspec("daemon", "stop")
    print(f"{'one token, ' + str(requests) + ' times each':32}    p50     p95 ms")
    for name, times in took.items():
        last = sorted(times)[round(0.95 * (len(times) - 1))]
        print(f"{name:32} {statistics.median(times):6.1f}  {last:6.1f}")


if __name__ == "__main__":
    main()
