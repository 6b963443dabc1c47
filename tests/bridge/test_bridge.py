"""``localspec bridge``: lines in, lines out; how it begins and ends, and what it does not take."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import select
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from websockets.asyncio.client import ClientConnection

from localspec.client import discovery
from localspec.errors import ExitCode
from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.harness import INITIALIZE, DaemonProcess, Raw, write_config
from tests.waiting import DEADLINE_S, soon

__all__ = ["home", "start"]

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


MAX_FRAME = 65536


@pytest.fixture
def daemon(start: StartDaemon) -> DaemonProcess:
    return start(max_frame=MAX_FRAME)


def line_of(method: str, **params: Any) -> bytes:
    """A request as a line."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"


@contextmanager
def begun(daemon: DaemonProcess) -> Iterator[subprocess.Popen[bytes]]:
    """A bridge that has sent ``initialize``, and whose output no process reads any more."""
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LOCALSPEC_HOME": str(daemon.home)},
        bufsize=0,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line_of("initialize", **INITIALIZE))
        assert b"result" in process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
async def test_starts_a_daemon_and_ends_with_stdin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(home)
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    async with bridged(home) as (client, lines):
        found = discovery.find()
        assert found is not None
        try:
            assert (await client.call(1, "daemon/status"))["result"]["pid"] == found.pid
            lines.stdin.close()
            assert await lines.end() == (ExitCode.OK, "")
            assert psutil.pid_exists(found.pid), "the daemon goes on"
        finally:
            psutil.Process(found.pid).terminate()


@pytest.mark.slow
def test_a_daemon_that_cannot_start_is_reported_with_the_remedy(home: Path) -> None:
    write_config(home, options={"modle": "x"})
    done = subprocess.run(
        COMMAND,
        input=b"",
        capture_output=True,
        env={**os.environ, "LOCALSPEC_HOME": str(home)},
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE and not done.stdout
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("localspec: ") and "did you mean 'options.model'" in line


@pytest.mark.slow
async def test_a_killed_daemon_ends_it_and_the_next_one_finds_another(start: StartDaemon) -> None:
    daemon = start()
    async with bridged(daemon.home) as (_, lines):
        daemon.process.kill()
        code, said = await lines.end()
        assert code == ExitCode.UNAVAILABLE
        lost = "localspec: the connection to the daemon was lost. "
        assert said.startswith(lost) and said.count("\n") == 1
    start()
    async with bridged(daemon.home) as (client, _):
        assert (await client.call(1, "daemon/status"))["result"]["running"] == 0


@pytest.mark.slow
async def test_half_a_line_is_not_sent(daemon: DaemonProcess) -> None:
    async with bridged(daemon.home) as (_, lines):
        lines.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "daemon/shutdown", "params": {}}')
        lines.stdin.close()
        assert await lines.end() == (ExitCode.OK, "")
    assert daemon.process.poll() is None


@pytest.mark.slow
async def test_a_message_may_come_in_pieces_among_empty_lines(daemon: DaemonProcess) -> None:
    async with bridged(daemon.home) as (client, lines):
        message = line_of("daemon/status")
        for piece in (b"\n\r\n" + message[:20], message[20:], b"\n"):
            lines.stdin.write(piece)
            await lines.stdin.drain()
        assert (await client.response(1))["result"]["running"] == 0


@pytest.mark.slow
async def test_bytes_that_are_no_text_do_no_harm(daemon: DaemonProcess) -> None:
    async with bridged(daemon.home) as (client, lines):
        await lines.send(line_of("generate", prompt="a?", raw=True).replace(b"?", b"\xff"))
        assert "�" in (await client.response(1))["result"]["text"]
        assert (await client.call(2, "daemon/status"))["result"]["running"] == 0


@pytest.mark.slow
async def test_the_largest_message_passes_and_a_larger_one_ends_it(daemon: DaemonProcess) -> None:
    async with bridged(daemon.home) as (client, lines):
        start, end = b'{"jsonrpc": "2.0", "id": 1, "method": "daemon/status", "x": "', b'"}'
        await lines.send(start + b"y" * (MAX_FRAME - len(start + end)) + end)
        assert "error" in await client.response(1)
        await lines.send(b"y" * (MAX_FRAME + 1))
        code, said = await lines.end()
        assert code == ExitCode.USAGE and f"longer than {MAX_FRAME} bytes" in said


async def test_an_endless_line_ends_it_as_well(daemon: DaemonProcess) -> None:
    async with bridged(daemon.home) as (_, lines):
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                lines.stdin.write(b"y" * MAX_FRAME)
                await lines.stdin.drain()
        assert (await lines.end())[0] == ExitCode.USAGE


@pytest.mark.slow
def test_without_a_reader_nothing_is_hoarded(daemon: DaemonProcess) -> None:
    with begun(daemon) as process:
        assert process.stdin is not None
        before = psutil.Process(process.pid).memory_info().rss
        for _ in range(5000):  # answers of more than 20 MB
            if not select.select([], [process.stdin], [], 1)[1]:
                break  # nor is more taken
            process.stdin.write(line_of("metrics"))
        assert psutil.Process(process.pid).memory_info().rss - before < 12 << 20
        process.terminate()
        assert process.wait(DEADLINE_S) == -signal.SIGTERM


@pytest.mark.slow
def test_a_reader_that_is_gone_ends_it_quietly(daemon: DaemonProcess) -> None:
    with begun(daemon) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stdin.write(line_of("daemon/status"))
        assert process.wait(DEADLINE_S) == ExitCode.OK and process.stderr.read() == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, ExitCode.INTERRUPTED)]
)
async def test_a_signal_ends_it_quietly(daemon: DaemonProcess, number: signal.Signals, code: int) -> None:
    async with bridged(daemon.home) as (_, lines):
        lines.process.send_signal(number)
        assert await lines.end() == (code, "")
    assert daemon.process.poll() is None


@pytest.mark.slow
async def test_the_daemon_sees_that_a_client_has_left(daemon: DaemonProcess) -> None:
    async def until_connected(watcher: Raw, count: int) -> None:
        for id in itertools.count(1000 * count):
            if (await watcher.call(id, "daemon/status"))["result"]["connections"] == count:
                return

    async with bridged(daemon.home) as (watcher, _):
        async with bridged(daemon.home) as (client, lines):
            await client.ask(1, "completion/inline", prefix="stall", suffix="", path="a.py")
            await until_connected(watcher, 2)
            lines.stdin.close()
        await until_connected(watcher, 1)
