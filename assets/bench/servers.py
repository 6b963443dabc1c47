"""The servers that are measured: a localspec daemon in a home of its own, and llama.cpp's own server.

llama-server is found by LOCALSPEC_LLAMA_SERVER or on PATH. llama-cpp-python's source release contains the
llama.cpp of localspec's backend, so that a server built from it (8 minutes on 2 cores) differs in its
speculation alone::

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
    tar xzf llama_cpp_python-0.3.36.tar.gz
    cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B llama-build -DCMAKE_BUILD_TYPE=Release \\
      -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \\
      -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_MTMD=OFF
    cmake --build llama-build --target llama-server --parallel
    export LOCALSPEC_LLAMA_SERVER=$PWD/llama-build/bin/llama-server
"""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import localspec as package
from localspec.client import Client, connect

PROGRAM, VARIABLE = "llama-server", "LOCALSPEC_LLAMA_SERVER"
START_S, STOP_S, POLL_S = 120.0, 5.0, 0.05
LOG_TAIL = 2000
"""characters at the end of its log that an error quotes"""


def localspec(*words: str) -> str:
    """Run a command, and return its output."""
    command = (sys.executable, "-m", "localspec", *words)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def own_home(config: str) -> Iterator[None]:
    """A home with this configuration; its daemon is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        Path(home, "config").mkdir()
        Path(home, "config", "config.toml").write_text(config, encoding="utf-8")
        try:
            yield
        finally:
            localspec("daemon", "stop")


def measure_costs(model: str, draft: str = "auto", n_ctx: int = 0) -> None:
    """Measure and record what a daemon with that context would measure while idle, beside other servers."""
    with package.load(model, draft=draft, memory=True, n_ctx=n_ctx) as engine:
        while engine.rest():
            pass


async def address_of(client: Client) -> str:
    """Wait for the daemon's HTTP server; return its address."""
    while (url := (await client.status()).http) is None:
        await asyncio.sleep(POLL_S)
    return url.removeprefix("http://")


class LlamaServer:
    """llama.cpp's own server on a model, with these arguments; started here."""

    def __init__(self, model: Path, arguments: Sequence[str] = ()) -> None:
        self._program = shutil.which(os.environ.get(VARIABLE, PROGRAM))
        if self._program is None:
            raise SystemExit(f"{PROGRAM} was not found: put it on PATH, or set {VARIABLE}.")
        self._arguments = ("--model", str(model), "--parallel", "1", "--cache-ram", "0", *arguments)
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        # Its environment variables would change the measured settings.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
        command = [str(self._program), *self._arguments, "--host", "127.0.0.1", "--port", str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, env=environment
        )
        deadline = time.monotonic() + START_S
        while not self._is_healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"{PROGRAM} did not start: {self.log}")
            time.sleep(POLL_S)

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(self.address)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

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
    """The address of the running daemon's HTTP server."""
    async with await connect(start=False, name="bench") as client:
        return await address_of(client)
