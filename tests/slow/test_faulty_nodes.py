"""A node on another machine, with every fault that it can have: each ends its own request only.

The other machine is a network namespace with a mount namespace of its own, so this needs root. With ``-s``
the outcomes and times are printed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.harness import REAL_DAEMON, Frame, Raw, code, gone, raw
from tests.slow.share import share
from tests.waiting import DEADLINE_S, until, until_sync

__all__ = ["home", "start"]

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from tests.mlx_pair import mlx_model  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not hasattr(os, "getuid") or os.getuid() != 0 or shutil.which("nsenter") is None,
        reason="root makes another machine, by Linux namespaces",
    ),
]

TIMES = share(20)
NETWORK, HERE, THERE = "10.9.40", "lsfaulty0", "lsfaulty1"
SETTINGS = '[engine]\nn_ctx = 512\nnodes = ["{}"]\n'
PROMPT: Frame = {"prompt": "def f(x):", "raw": True}
SITE = """
import pathlib, sys, time
fault = pathlib.Path(__file__).with_name("fault").read_text()
if sys.orig_argv[-1] == "follow":
    from localspec.ranks import follower, frames
    if fault == "slow":
        replay = follower.replay
        def slow(*call):
            time.sleep(0.1)
            replay(*call)
        follower.replay = slow
    if fault == "no room":
        from localspec.models import fit
        fit.free_memory = lambda: 1 << 20
    if fault == "other version":
        versions = {**frames.versions(), "mlx": "0.1"}
        frames.versions = lambda: versions
"""
"""what goes wrong in a node's processes, from their start"""


class Machine:
    """Another machine, whose node listens at ``name``."""

    def __init__(self, place: Path, model: Path) -> None:
        self._place, self._model = place, model
        (place / "sitecustomize.py").write_text(SITE)
        (place / "temporary").mkdir()
        self.be("well")
        self._held = subprocess.Popen(["unshare", "-n", "-m", "sleep", "infinity"])
        until_sync(self._is_apart, "the namespaces are there")
        pid = str(self._held.pid)
        subprocess.run(["ip", "link", "add", HERE, "type", "veth", "peer", THERE, "netns", pid], check=True)
        for words in (["addr", "add", f"{NETWORK}.1/24", "dev", HERE], ["link", "set", HERE, "up"]):
            subprocess.run(["ip", *words], check=True)
        self.on("ip", "addr", "add", f"{NETWORK}.2/24", "dev", THERE)
        for device in ("lo", THERE):
            self.on("ip", "link", "set", device, "up")
        around = {"LOCALSPEC_HOME": str(place), "TMPDIR": str(place / "temporary"), "PYTHONPATH": str(place)}
        command = (*self._inside(), REAL_DAEMON[0], "-m", "localspec", "follow", "--listen", f"{NETWORK}.2:0")
        self._listener = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **around}
        )
        assert self._listener.stdout is not None
        self.name = next(line.split('"')[1] for line in self._listener.stdout if "set nodes" in line)

    def _is_apart(self) -> bool:
        inside = [os.readlink(f"/proc/{pid}/ns/mnt") for pid in (os.getpid(), self._held.pid)]
        return inside[0] != inside[1]

    def _inside(self) -> tuple[str, ...]:
        return ("nsenter", "-n", "-m", "-t", str(self._held.pid))

    def on(self, *command: str) -> None:
        """Run a command on this machine."""
        subprocess.run([*self._inside(), *command], check=True)

    def be(self, fault: str) -> None:
        """Have new processes of the node begin with this fault."""
        (self._place / "fault").write_text(fault)

    def connect(self, on: bool) -> None:
        self.on("ip", "link", "set", THERE, "up" if on else "down")

    def change_weights(self, on: bool) -> None:
        """Have one bit of the model be another one on this machine."""
        if not on:
            self.on("umount", str(self._model))
            return
        other = self._place / "other"
        shutil.copytree(self._model, other, dirs_exist_ok=True)
        path = other / "model.safetensors"
        weights = bytearray(path.read_bytes())
        weights[-1] ^= 1
        path.write_bytes(weights)
        self.on("mount", "--bind", str(other), str(self._model))

    def ranks(self) -> list[psutil.Process]:
        return psutil.Process(self._listener.pid).children()

    def leftovers(self) -> list[str]:
        """Temporary files, and open ports beside the node's own."""
        lines = Path(f"/proc/{self._listener.pid}/net/tcp").read_text().splitlines()[1:]
        listening = [fields[1] for fields in map(str.split, lines) if fields[3] == "0A"]
        return [*(path.name for path in (self._place / "temporary").iterdir()), *listening[1:]]

    def close(self) -> None:
        self._listener.send_signal(signal.SIGINT)
        self._listener.communicate()
        self._held.kill()
        self._held.wait()


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    place = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    machine = Machine(place, mlx_model("stdlib-6m"))
    yield machine
    machine.close()
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def noted() -> Iterator[dict[str, list[tuple[str, float]]]]:
    """Outcome and seconds of every fault."""
    found = defaultdict[str, list[tuple[str, float]]](list)
    yield found
    for fault, all in sorted(found.items()):
        outcomes, times = sorted({outcome for outcome, _ in all}), [seconds for _, seconds in all]
        print(
            f"\n{fault}: {len(all)} x {', '.join(outcomes)}, median {statistics.median(times):.2f} s,", end=""
        )
        print(f" worst {max(times):.2f} s", end="")


def options(tokens: int) -> Frame:
    plain = {"model": str(mlx_model("stdlib-6m")), "draft": "none", "proposer": "none", "temperature": 0}
    return {**plain, "max_tokens": tokens}


async def answer(client: Raw, id: str) -> str:
    text: str = (await client.result(id, "generate", options=options(8), **PROMPT))["text"]
    return text


async def moment(client: Raw, machine: Machine, number: int) -> None:
    """Begin request ``victim``, and wait for any moment: while its model loads, or while it is answered."""
    chance = random.Random(number)
    if number % 2:
        await client.call("unload", "models/unload", model=options(1)["model"])
        await client.ask("victim", "generate", options=options(400), **PROMPT)
        await until(lambda: bool(machine.ranks()), "the node has started a process")
        time.sleep(chance.uniform(0, 2))
    else:
        await client.begin("victim", "generate", options=options(400), **PROMPT)
        for _ in range(chance.randrange(20)):
            await client.notice("stream/delta")


LOST: dict[str, tuple[Callable[[Machine], None], Callable[[Machine], None]]] = {
    "killed": (lambda m: m.ranks()[-1].kill(), lambda m: None),
    "stopped": (lambda m: m.ranks()[-1].suspend(), lambda m: m.ranks()[-1].resume()),
    "cut": (lambda m: m.connect(False), lambda m: m.connect(True)),
}
"""a fault, and its end, by name"""
REFUSED = {
    "other version": "version_skew",
    "other weights": "model_invalid",
    "no room": "model_too_large",
}


@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize("fault", [*LOST, *REFUSED, "slow"])
async def test_a_fault_ends_its_own_request_only(
    start: StartDaemon,
    machine: Machine,
    noted: dict[str, list[tuple[str, float]]],
    fault: str,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="ls"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    daemon = start(command=REAL_DAEMON, sections=SETTINGS.format(machine.name))
    async with raw(daemon) as client:
        if fault in LOST:
            truth = await answer(client, "before")
            begin, end = LOST[fault]
            await moment(client, machine, number)
            workers, ranks = daemon.workers(), machine.ranks()
            begun = time.monotonic()
            begin(machine)
            outcome = code(await client.response("victim"))
            noted[fault].append((outcome, time.monotonic() - begun))
            assert outcome == "node_lost"
            if fault == "cut":
                begun = time.monotonic()
                outcome = code(await client.call("again", "generate", options=options(8), **PROMPT))
                noted["asked while cut"].append((outcome, time.monotonic() - begun))
                assert outcome == "node_lost"
            if fault == "cut" and number == 0:
                until_sync(lambda: all(map(gone, ranks)), "the node ends by itself", 2 * DEADLINE_S)
            end(machine)
            await until(lambda: all(map(gone, (*workers, *ranks))), "both ranks are gone")
        else:
            machine.be(fault)
            if fault == "other weights":
                machine.change_weights(True)
            begun = time.monotonic()
            response = await client.call("one", "generate", options=options(8), **PROMPT)
            outcome = "answered" if "result" in response else code(response)
            noted[fault].append((outcome, time.monotonic() - begun))
            assert outcome == REFUSED.get(fault, "answered"), response
            machine.be("well")
            if fault == "other weights":
                machine.change_weights(False)
            truth = response["result"]["text"] if fault == "slow" else ""
        assert await answer(client, "after") == (truth or await answer(client, "again"))
    assert daemon.stop() == 0
    await until(lambda: not machine.ranks(), "no rank is left")
    assert [*temporary.iterdir(), *machine.leftovers()] == []
    temporary.rmdir()
