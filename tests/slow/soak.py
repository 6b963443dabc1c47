"""Many mixed requests to a real daemon with the bundled pair: ``python -m tests.slow.soak --seed N``.

Several processes of clients send requests, cancel and disconnect (tests/slow/soaker.py), the worker is killed
now and then, and at the end nothing may be lost: no memory, no file, no cache sequence, no request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from functools import partial
from pathlib import Path

import psutil

from localspec.client import Client, connect
from localspec.client.stream import Stream
from localspec.errors import EngineCrashed
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.results import Result
from tests.cli.harness import CONFIG, LONG
from tests.waiting import DEADLINE_S, POLL_S

PROCESSES = 3
KILLS = 10
"""of the worker, evenly spread"""
ALLOWED = {"engine_crashed", "session_not_found", "invalid_options"}
"""the codes that this soak provokes; a client process ends at any other"""
MIB = 1024 * 1024
MORE_FILES, MORE_BYTES = 4, 48 * MIB


class Soak:
    """Measured values, and the clients' counts."""

    def __init__(self, requests: int, seed: int) -> None:
        self.requests, self.seed = requests, seed
        self.rng = random.Random(seed)
        self.progress = [0] * PROCESSES
        self.counts = Counter[str]()
        self.sizes: list[tuple[str, int, int, int]] = []
        """time, bytes of the daemon, bytes of the worker, open files of the daemon"""
        self.kills = 0
        self.seconds = 0.0

    @property
    def done(self) -> int:
        return sum(self.progress)

    async def run(self) -> None:
        async with await connect(name="soak") as client:
            await warm(client)
            await self.measure(client, "start")
            began = time.monotonic()
            share = self.requests // PROCESSES
            parts = [share] * (PROCESSES - 1) + [self.requests - share * (PROCESSES - 1)]
            clients = [await self.start(part) for part in parts]
            watching = asyncio.create_task(self.watch(client))
            async with asyncio.TaskGroup() as group:
                for number, process in enumerate(clients):
                    group.create_task(self.follow(number, process))
            self.seconds = time.monotonic() - began
            watching.cancel()
            await alone(client)
            await warm(client)
            await self.measure(client, "end")
            await every_sequence_is_free(client)
            await client.shutdown()

    async def start(self, requests: int) -> Process:
        arguments = ("-m", "tests.slow.soaker", str(requests), str(self.rng.randrange(1 << 30)))
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE)

    async def follow(self, number: int, process: Process) -> None:
        """Read a client's progress to its end, and add what it counted."""
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b"{"):
                self.counts.update(json.loads(line))
            else:
                self.progress[number] = int(line)
        assert await process.wait() == 0, "a client has failed"

    async def watch(self, client: Client) -> None:
        """Kill the worker by and by, measure half-way, and print the progress."""
        began, half = time.monotonic(), False
        while True:
            await asyncio.sleep(0.5)  # not to wait for anything: this is how often it looks
            speed = self.done / (time.monotonic() - began)
            print(f"\r{self.done} of {self.requests}, {speed:.0f}/s ", end="", file=sys.stderr, flush=True)
            if self.done >= self.requests * (self.kills + 1) // (KILLS + 1) and self.kills < KILLS:
                await self.kill(client)
            if not half and self.done >= self.requests // 2:
                half = True
                await self.measure(client, "half")

    async def kill(self, client: Client) -> None:
        self.kills += 1
        for model in (await client.status()).models:
            os.kill(model.pid, signal.SIGKILL)

    async def measure(self, client: Client, when: str) -> None:
        status = await client.status()
        worker = sum(model.resident_bytes or 0 for model in status.models)
        self.sizes.append((when, status.resident_bytes or 0, worker, psutil.Process(status.pid).num_fds()))

    def table(self) -> str:
        """Return the summary for a reader."""
        lines = [
            f"seed {self.seed}: {self.counts['done']} requests in {self.seconds:.0f} s, "
            f"{self.counts['done'] / self.seconds:.0f}/s, {PROCESSES} processes, {self.kills} workers killed"
        ]
        for kind in ("method", "ending", "error", "text"):
            found = {name: n for name, n in self.counts.items() if name.startswith(f"{kind} ")}
            lines += [f"  {name!r:45} {n:7}" for name, n in sorted(found.items())]
        lines += [
            f"  {when:8} daemon {daemon / MIB:6.1f} MiB, worker {worker / MIB:6.1f} MiB, {files} files"
            for when, daemon, worker, files in self.sizes
        ]
        return "\n".join([*lines, "  0 cache sequences leaked"])

    def check(self) -> None:
        """Nothing undocumented, nothing lost, one text."""
        codes = {name.removeprefix("error ") for name in self.counts if name.startswith("error ")}
        assert codes <= ALLOWED, codes
        assert self.counts["done"] == self.requests
        assert sum(name.startswith("text ") for name in self.counts) == 1, "the fixed prompt's text changed"
        (_, before, _, files), (_, after, _, files_after) = self.sizes[0], self.sizes[-1]
        assert files_after <= files + MORE_FILES and after <= before + MORE_BYTES


async def warm(client: Client) -> None:
    """Load the model, and let its worker answer; where it was killed just now, another one does."""
    asked = partial(client.generate, "def f(x):", raw=True, options=Options(max_tokens=4))
    try:
        await asked().result()
    except EngineCrashed:
        await asked().result()


async def alone(client: Client) -> None:
    """Wait until the daemon has no other client."""
    async with asyncio.timeout(DEADLINE_S):
        while (status := await client.status()).connections > 1 or status.running:
            await asyncio.sleep(POLL_S)


async def every_sequence_is_free(client: Client) -> None:
    """As many requests as there are cache sequences stream at once: were one leaked, the last would wait."""
    options = Options(temperature=0.0, proposer="none")

    async def begun(stream: Stream[Result]) -> None:
        await anext(aiter(stream))

    streams = [client.generate(LONG[-1], options=options) for _ in range(EngineConfig().parallel)]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(begun(stream) for stream in streams))
    endings = [(await stream.cancel()).finish_reason for stream in streams]
    assert endings == ["cancelled"] * len(streams), f"they did not run at once: {endings}"


def soak(requests: int, seed: int) -> Soak:
    """A soak in a home of its own; returns what was found, or raises for what is wrong."""
    found = Soak(requests, seed)
    before = os.environ.get("LOCALSPEC_HOME")
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        (Path(home) / "config").mkdir()
        (Path(home) / "config" / "config.toml").write_text(CONFIG)
        try:
            asyncio.run(found.run())
        except BaseException:
            print((Path(home) / "state" / "daemon.log").read_text()[-5000:], file=sys.stderr)
            end_daemon(Path(home))
            raise
        finally:
            os.environ.pop("LOCALSPEC_HOME")
            if before is not None:
                os.environ["LOCALSPEC_HOME"] = before
    print(f"\n{found.table()}")
    found.check()
    return found


def end_daemon(home: Path) -> None:
    """After a failure."""
    path = home / "runtime" / "daemon.json"
    if path.exists():
        process = psutil.Process(json.loads(path.read_text())["pid"])
        process.terminate()
        process.wait(DEADLINE_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Soak a real daemon in mixed requests.")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    soak(given.requests, given.seed)
