"""The cost of a request by HTTP, beside the same one on the daemon's wire.

    python -m assets.bench.http_cost [--requests 100]

Requests for one token after a short prompt go to a daemon of its own in turn: on a wire that is kept open, on
a new one, by HTTP on a connection that is kept open, and on a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection

from assets.bench.servers import address_of, http_daemon, localspec
from localspec.client import Client, connect
from localspec.models.catalogue import BUNDLED
from localspec.protocol.options import Options

PROMPT = "def fib(n):\n"

Send = Callable[[], Awaitable[None]]


async def tokens(client: Client) -> None:
    await client.generate(PROMPT, raw=True, options=Options(max_tokens=1, temperature=0.0)).result()


class HttpServer:
    """A minimal client of the daemon's HTTP server."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {localspec('daemon', 'token').strip()}"}
        self._kept = HTTPConnection(address)

    def tokens(self, *, kept: bool) -> None:
        """Ask for a token on the kept connection, or on a new one."""
        connection = self._kept if kept else HTTPConnection(self._address)
        body = json.dumps({"prompt": PROMPT, "n_predict": 1, "temperature": 0})
        connection.request("POST", "/completion", body, self._headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(content.decode())


async def measure(requests: int) -> dict[str, list[float]]:
    """Milliseconds by kind of request and connection."""
    async with await connect(start=False, name="bench") as kept:
        server = HttpServer(await address_of(kept))

        async def new_wire() -> None:
            async with await connect(start=False, name="bench") as client:
                await tokens(client)

        kinds: dict[str, Send] = {
            "wire, kept open": lambda: tokens(kept),
            "wire, a new connection": new_wire,
            "HTTP, kept open": lambda: asyncio.to_thread(server.tokens, kept=True),
            "HTTP, a new connection": lambda: asyncio.to_thread(server.tokens, kept=False),
        }
        took: dict[str, list[float]] = {name: [] for name in kinds}
        await tokens(kept)
        for _ in range(requests):
            for name, send in kinds.items():
                began = time.perf_counter()
                await send()
                took[name].append(1000 * (time.perf_counter() - began))
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a request by HTTP.")
    parser.add_argument("--requests", type=int, default=100)
    requests = parser.parse_args().requests
    with http_daemon("", [(BUNDLED, "auto", 0)]):
        took = asyncio.run(measure(requests))
    print(f"{'one token, ' + str(requests) + ' times each':32}    p50     p95 ms")
    for name, times in took.items():
        last = sorted(times)[round(0.95 * (len(times) - 1))]
        print(f"{name:32} {statistics.median(times):6.1f}  {last:6.1f}")


if __name__ == "__main__":
    main()
