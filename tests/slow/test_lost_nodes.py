"""A model over two processes in the real daemon: one is lost, and the next request works."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localspec.process import python, surroundings
from localspec.ranks.nodes import MOST
from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Frame, Raw, code, gone, raw
from tests.waiting import until

__all__ = ["home", "start"]

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from tests.mlx_pair import mlx_model  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NODES = '[engine]\nn_ctx = 512\nnodes = ["{}"]\n'
PROMPT: Frame = {"prompt": "def f(x):", "raw": True}


def options(**more: object) -> Frame:
    return {
        "model": str(mlx_model("stdlib-6m")),
        "draft": "none",
        "proposer": "none",
        "temperature": 0,
        **more,
    }


async def answer(client: Raw, id: str) -> str:
    text: str = (await client.result(id, "generate", options=options(max_tokens=8), **PROMPT))["text"]
    return text


def processes(daemon: DaemonProcess) -> tuple[psutil.Process, psutil.Process]:
    """The worker, and the other rank."""
    (worker,) = daemon.workers()
    (node,) = (each for each in worker.children() if "localspec.models.rendering" not in each.cmdline())
    return worker, node


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_lost_rank_ends_its_requests_and_the_next_one_works(
    start: StartDaemon, number: signal.Signals
) -> None:
    daemon = start(command=REAL_DAEMON, sections=NODES.format("local"))
    async with raw(daemon) as client:
        before = await answer(client, "before")
        await client.begin("victim", "generate", options=options(max_tokens=400), **PROMPT)
        worker, node = processes(daemon)
        node.send_signal(number)
        ended = await client.response("victim")
        assert code(ended) == "node_lost", ended
        assert "node local" in ended["error"]["message"]
        await until(lambda: gone(worker) and gone(node), "both ranks are gone")
        assert await answer(client, "after") == before


async def test_no_rank_outlives_the_first_one(start: StartDaemon) -> None:
    daemon = start(command=REAL_DAEMON, sections=NODES.format("local"))
    async with raw(daemon) as client:
        await answer(client, "before")
        worker, node = processes(daemon)
        worker.kill()
        await until(lambda: gone(node), "the other rank is gone")


@pytest.fixture
def listening(home: Path) -> Iterator[str]:
    """The name of a node that listens on this machine."""
    around = surroundings(added={"LOCALSPEC_HOME": str(home / "node")})
    command = python("localspec", "follow", "--listen", "127.0.0.1:0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **around) as process:
        assert process.stdout is not None
        yield next(line.split('"')[1] for line in process.stdout if "config set nodes" in line)
        process.send_signal(signal.SIGINT)
        process.wait()


def test_connections_without_the_token_take_few_processes(listening: str) -> None:
    address = listening.partition("#")[0].split(":")
    with contextlib.ExitStack() as stack:
        *held, last = [
            stack.enter_context(socket.create_connection((address[0], int(address[1])), 20))
            for _ in range(MOST + 1)
        ]
        assert all(each.recv(1) for each in held)
        assert last.recv(1) == b""


async def test_a_node_that_listens_answers_with_its_token_only(start: StartDaemon, listening: str) -> None:
    other = listening[:-1] + ("0" if listening[-1] != "0" else "1")
    for node, expected in ((other, "unauthorized"), (listening, "")):
        daemon = start(command=REAL_DAEMON, sections=NODES.format(node))
        async with raw(daemon) as client:
            if expected:
                await client.ask("one", "generate", options=options(max_tokens=8), **PROMPT)
                assert code(await client.response("one")) == expected
            else:
                assert await answer(client, "one")
        assert daemon.stop() == 0
