"""A node on another machine, with every fault that it can have: each ends its own request only.

The other machine is a network namespace with a mount namespace of its own, so this needs root. With ``-s``
the outcomes and times are printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Frame, Raw, code, gone, raw
from tests.far_ssh import write_ssh
from tests.slow.share import share
from tests.waiting import until, until_sync

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

TURNS = [range(first, min(share(20), first + 3)) for first in range(0, share(20), 3)]
"""the numbers of faults that one daemon has in turn"""
NETWORK, HERE, THERE = f"10.9.{os.getpid() % 200 + 40}", f"lsh{os.getpid()}", f"lst{os.getpid()}"
SETTINGS = '[engine]\nn_ctx = 512\nnodes = ["far"]\n'
PROMPT: Frame = {"prompt": "def f(x):", "raw": True}
SITE = """
import pathlib, sys, time
fault = pathlib.Path(__file__).with_name("fault").read_text()
if sys.orig_argv[-1] == "follow":
    from localspec.ranks import follower, frames
    if fault == "slow":
        replay = follower.replay
        follower.replay = lambda *call: (time.sleep(0.1), replay(*call))
    if fault == "no room":
        from localspec.engine import load
        load.free_memory = lambda: 1 << 20
    if fault == "other version":
        versions = {**frames.versions(), "mlx": "0.1"}
        frames.versions = lambda: versions
"""
"""what goes wrong in a node's processes, from their start"""

Noted = dict[str, list[tuple[str, float]]]
"""outcomes and seconds of every fault"""


class Machine:
    """Another machine, which the ``ssh`` in ``place`` reaches."""

    def __init__(self, place: Path, model: Path) -> None:
        self.place, self._model, self._fault = place, model, place / "fault"
        (place / "sitecustomize.py").write_text(SITE)
        (place / "temporary").mkdir()
        self._fault.write_text("")
        self._held = subprocess.Popen(["unshare", "-n", "-m", "sleep", "infinity"])
        until_sync(self._is_apart, "the namespaces are there")
        pid = str(self._held.pid)
        subprocess.run(["ip", "link", "add", HERE, "type", "veth", "peer", THERE, "netns", pid], check=True)
        for words in (["addr", "add", f"{NETWORK}.1/24", "dev", HERE], ["link", "set", HERE, "up"]):
            subprocess.run(["ip", *words], check=True)
        self.on("ip", "addr", "add", f"{NETWORK}.2/24", "dev", THERE)
        for device in ("lo", THERE):
            self.on("ip", "link", "set", device, "up")
        path = os.pathsep.join((str(place), os.environ.get("PYTHONPATH", "")))
        around = (f"LOCALSPEC_HOME={place}", f"TMPDIR={place}/temporary", f"PYTHONPATH={path}")
        write_ssh(place, pid, f"{NETWORK}.1", f"{NETWORK}.2", *around)

    def _is_apart(self) -> bool:
        return len({os.readlink(f"/proc/{pid}/ns/mnt") for pid in (os.getpid(), self._held.pid)}) == 2

    def _inside(self) -> tuple[str, ...]:
        return ("nsenter", "-n", "-m", "-t", str(self._held.pid))

    def on(self, *command: str) -> None:
        """Run a command on this machine."""
        subprocess.run([*self._inside(), *command], check=True)

    @contextmanager
    def having(self, fault: str) -> Iterator[None]:
        """Have a fault: in the node's newest process, in those that begin, or of the connection."""
        with ExitStack() as ends:
            match fault:
                case "killed":
                    self.ranks()[-1].kill()
                case "stopped":
                    rank = self.ranks()[-1]
                    rank.suspend()
                    ends.callback(rank.resume)
                case "cut":
                    self.on("ip", "link", "set", THERE, "down")
                    ends.callback(self.on, "ip", "link", "set", THERE, "up")
                case "other weights":
                    self.on("mount", "--bind", str(self._changed()), str(self._model))
                    ends.callback(self.on, "umount", str(self._model))
                case _:
                    self._fault.write_text(fault)
                    ends.callback(self._fault.write_text, "")
            yield

    def _changed(self) -> Path:
        """The model with one bit that is another one."""
        other = self.place / "other"
        shutil.copytree(self._model, other, dirs_exist_ok=True)
        path = other / "model.safetensors"
        weights = bytearray(path.read_bytes())
        weights[-1] ^= 1
        path.write_bytes(weights)
        return other

    def ranks(self) -> list[psutil.Process]:
        """The node's processes that run."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.cmdline()[-1:] == ["follow"] and each.environ()["LOCALSPEC_HOME"] == str(self.place):
                    found.append(each)
        return found

    def leftovers(self) -> list[str]:
        """Temporary files, and open ports."""
        lines = Path(f"/proc/{self._held.pid}/net/tcp").read_text().splitlines()[1:]
        return [*files(self.place), *(fields[1] for fields in map(str.split, lines) if fields[3] == "0A")]

    def close(self) -> None:
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
def noted() -> Iterator[Noted]:
    found = defaultdict[str, list[tuple[str, float]]](list)
    yield found
    for fault, all in sorted(found.items()):
        outcomes, times = sorted({outcome for outcome, _ in all}), [seconds for _, seconds in all]
        figures = f"median {statistics.median(times):.2f} s, worst {max(times):.2f} s"
        print(f"\n{fault}: {len(all)} x {', '.join(outcomes)}, {figures}", end="")


def options(tokens: int) -> Frame:
    plain = {"model": str(mlx_model("stdlib-6m")), "draft": "none", "proposer": "none", "temperature": 0}
    return {**plain, "max_tokens": tokens}


async def answer(client: Raw, id: str) -> str:
    text: str = (await client.result(id, "generate", options=options(8), **PROMPT))["text"]
    return text


async def moment(client: Raw, machine: Machine, number: int) -> str:
    """Begin a request, and wait for any moment: while its model loads, or while it is answered; its id."""
    id, chance = f"victim {number}", random.Random(number)
    if number % 2:
        await unload(client, machine)
        await client.ask(id, "generate", options=options(400), **PROMPT)
        await until(lambda: bool(machine.ranks()), "the node has started a process")
        await asyncio.sleep(chance.uniform(0, 2))
    else:
        await client.begin(id, "generate", options=options(400), **PROMPT)
        for _ in range(chance.randrange(20)):
            await client.notice("stream/delta")
    return id


def ended(processes: list[psutil.Process]) -> Callable[[], bool]:
    return lambda: all(map(gone, processes))


async def unload(client: Raw, machine: Machine) -> None:
    await client.call("unload", "models/unload", model=options(1)["model"])
    await until(lambda: not machine.ranks(), "the node's process has ended")


LOST = "killed", "stopped", "cut"
OTHER = {
    "other version": "version_skew",
    "other weights": "model_invalid",
    "no room": "model_too_large",
    "slow": "",
}


@pytest.fixture
def begin(
    start: StartDaemon, home: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], DaemonProcess]:
    """Start a daemon that knows the other machine."""
    (home / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(home / "temporary"))
    monkeypatch.setenv("PATH", f"{machine.place}:{os.environ['PATH']}")
    return lambda: start(command=REAL_DAEMON, sections=SETTINGS)


def files(place: Path) -> list[str]:
    """Temporary files, without MLX's compiled functions, which all its processes use."""
    return [path.name for path in (place / "temporary").iterdir() if path.name != "mlx"]


async def left(daemon: DaemonProcess, machine: Machine) -> list[str]:
    """Stop the daemon; return the temporary files and open ports that it or the node leaves behind."""
    assert daemon.stop() == 0
    await until(lambda: not machine.ranks(), "no rank is left")
    return [*files(daemon.home), *machine.leftovers()]


async def timed(noted: Noted, fault: str, response: Awaitable[Frame]) -> str:
    """Note outcome and time of a response, and return its code."""
    begun = time.monotonic()
    frame = await response
    outcome = "" if "result" in frame else code(frame)
    noted[fault].append((outcome or "answered", time.monotonic() - begun))
    print("\n{}: {} after {:.2f} s".format(fault, *noted[fault][-1]), end="")
    return outcome


@pytest.mark.parametrize("numbers", TURNS)
@pytest.mark.parametrize("fault", LOST)
async def test_a_loss_ends_its_requests_only(
    begin: Callable[[], DaemonProcess], machine: Machine, noted: Noted, fault: str, numbers: range
) -> None:
    daemon = begin()
    async with raw(daemon) as client:
        truth = await answer(client, "before")
        for number in numbers:
            victim = await moment(client, machine, number)
            workers, ranks = daemon.workers(), machine.ranks()
            with machine.having(fault):
                assert await timed(noted, fault, client.response(victim)) == "node_lost"
                if fault == "cut":
                    again = client.call("again", "generate", options=options(8), **PROMPT)
                    assert await timed(noted, "asked while cut", again) == "node_lost"
                if fault == "cut" and number == 0:
                    await until(ended(ranks), "the node ends by itself")
            await until(ended(workers + ranks), "both ranks are gone")
        assert await answer(client, "after") == truth
    assert await left(daemon, machine) == []


@pytest.mark.parametrize("numbers", TURNS)
@pytest.mark.parametrize("fault", OTHER)
async def test_what_differs_is_refused_and_what_is_slow_is_not(
    begin: Callable[[], DaemonProcess], machine: Machine, noted: Noted, fault: str, numbers: range
) -> None:
    daemon = begin()
    async with raw(daemon) as client:
        for number in numbers:
            with machine.having(fault):
                asked = client.call(number, "generate", options=options(8), **PROMPT)
                assert await timed(noted, fault, asked) == OTHER[fault]
            await unload(client, machine)
        assert await answer(client, "after")
    assert await left(daemon, machine) == []
