"""A model over two processes in the real daemon: one is lost, and the next request works."""

from __future__ import annotations

import signal

import psutil
import pytest

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
