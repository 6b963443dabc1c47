"""The bundled model over a server of llama.cpp's RPC on this machine: texts as here, and lost servers."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from socket import create_server

import pytest

from tests.cli.harness import LONG, Cli
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

ASK = ("run", "--raw", "--max-tokens", "40", "--temperature", "0", "--exactness", "strict", "def fib(n):")


@pytest.fixture(scope="module")
def server(cli: Cli) -> Iterator[subprocess.Popen[bytes]]:
    """A server, and the configuration that uses it."""
    with create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert cli("config", "set", "rpc", f'["{address}"]').returncode == 0
    process = cli.begin("rpc", "serve", address)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.timeout(8 * DEADLINE_S)
def test_a_model_over_a_server_says_the_same_until_it_ends(cli: Cli, server: subprocess.Popen[bytes]) -> None:
    local = cli.json(*ASK, "--opt", "rpc=[]", "--no-daemon", "--proposer", "none")["text"]
    for proposer in ("none", "auto"):
        assert cli.json(*ASK, "--proposer", proposer)["text"] == local, proposer
    (model,) = cli.status()["models"]
    assert "layers on 127.0.0.1:" in model["reason"]
    assert model["offloaded_bytes"] > 0
    running = subprocess.Popen((*cli.command, *LONG), stdout=-1, stderr=-1, env=cli.environment)
    assert running.stdout is not None and running.stdout.read(1)
    server.send_signal(signal.SIGKILL)
    _, errors = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, b"RPC server 127.0.0.1:" in errors) == (1, True), errors
    again = cli(*ASK)
    assert again.returncode == 1
    assert "no RPC server answers at 127.0.0.1:" in again.stderr
    assert cli("config", "set", "rpc", "--unset").returncode == 0
    assert cli.json(*ASK)["text"] == local
