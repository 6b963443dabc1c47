"""The servers that are measured: a localspec daemon in a home of its own, and llama.cpp's own server.

llama-server is found by LOCALSPEC_LLAMA_SERVER or on PATH; README.md says how to build the one of the same
llama.cpp.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import localspec as package
from localspec.client import connect

PROGRAM, VARIABLE = "llama-server", "LOCALSPEC_LLAMA_SERVER"
START_S, STOP_S, POLL_S = 120.0, 5.0, 0.05
LOG_TAIL = 2000
"""characters at the end of its log that an error quotes"""


def localspec(*words: str) -> str:
    """Run a command, and return its output."""
    command = (sys.executable, "-m", "localspec", *words)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def own_home(config: str) -> Iterator[Path]:
    """A home with this configuration; its daemon is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        Path(home, "config").mkdir()
        Path(home, "config", "config.toml").write_text(config, encoding="utf-8")
        try:
            yield Path(home)
        finally:
            localspec("daemon", "stop")


class Server(NamedTuple):
    """The address of an HTTP server, and the headers of each request."""

    address: str
    headers: dict[str, str]


@contextmanager
def http_daemon(config: str, measured: Iterable[tuple[str, str, int]] = ()) -> Iterator[tuple[Server, Path]]:
    """A daemon with an HTTP server and this configuration, and its home; these pairs were measured before."""
    with own_home(f"{config}[http]\nenabled = true\nport = 0\n") as home:
        for pair in measured:
            measure_costs(*pair)
        localspec("daemon", "start")
        headers = {"Authorization": f"Bearer {localspec('daemon', 'token').strip()}"}
        yield Server(asyncio.run(daemon_address()), headers), home


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """So many programs that each keep a core busy."""
    command = (sys.executable, "-c", "while True: pass")
    with ExitStack() as stack:
        for _ in range(programs):
            spinning = stack.enter_context(subprocess.Popen(command, start_new_session=True))
            stack.callback(spinning.kill)
        yield


def measure_costs(model: str, draft: str = "auto", n_ctx: int = 0) -> None:
    """Measure and record what a daemon with that context would measure while idle, beside other servers."""
    with package.load(model, draft=draft, memory=True, n_ctx=n_ctx) as engine:
        while engine.rest():
            pass


class LlamaServer:
    """llama.cpp's own server on a model, with these arguments; started here. ``server`` is its address."""

    def __init__(self, model: Path, arguments: Sequence[str] = ()) -> None:
        program = shutil.which(os.environ.get(VARIABLE, PROGRAM))
        if program is None:
            raise SystemExit(f"{PROGRAM} was not found: put it on PATH, or set {VARIABLE}.")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.server = Server(f"127.0.0.1:{port}", {})
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        # Its environment variables would change the measured settings.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
        own = ("--parallel", "1", "--cache-ram", "0", "--host", "127.0.0.1", "--port", str(port))
        command = [str(program), "--model", str(model), *arguments, *own]
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._log, "stderr": self._log}
        # In a session of its own, like the model's process: Linux divides a processor among sessions.
        self._process = subprocess.Popen(command, env=environment, start_new_session=True, **files)
        deadline = time.monotonic() + START_S
        try:
            while not self._is_healthy():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(POLL_S)
        except BaseException as error:
            self.close()
            raise SystemExit(f"{PROGRAM} did not start: {self.log}") from error

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(self.server.address)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def __enter__(self) -> LlamaServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the process, and keep the end of its log."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.seek(0)
        self.log = self._log.read().decode("utf-8", "replace")[-LOG_TAIL:].strip()
        self._log.close()


async def daemon_address() -> str:
    """The address of the running daemon's HTTP server, once it is there."""
    async with await connect(start=False, name="bench") as client:
        while (url := (await client.status()).http) is None:
            await asyncio.sleep(POLL_S)
        return url.removeprefix("http://")


def daemon_pid() -> int:
    """The running daemon's process."""
    return int(json.loads(localspec("daemon", "status", "--json"))["pid"])
