"""A daemon with real models for faults to happen to, and what they are done by."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Frame, Raw

HANG_S = 3.0
PROMPT = "def f(x):"
QUESTION = "What does textwrap.dedent do?"
LONG: Frame = {"temperature": 0, "proposer": "none", "backend": "llama_cpp"}
"""greedy text of a small model repeats itself until the context is full: for a second or two"""
SHORT: Frame = {"temperature": 0, "max_tokens": 32, "backend": "llama_cpp"}
OTHER: Frame = {**SHORT, "model": "stdlib-1m", "draft": "none"}
MOMENT_S = 0.08
"""something happens at a random moment within this, after the first token"""
MB = 1 << 20


class Skipped(Exception):
    """This machine does not allow it."""


class Scene:
    """A daemon in a home of its own, its models' expected answers, and a random generator."""

    def __init__(self, seed: int = 1, *, data_on_tmpfs: bool = False) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
        self.rng = random.Random(seed)
        self.clock = self.home / "clock"
        self.clock.write_text("0")
        (self.home / "sitecustomize.py").write_text(CLOCK)
        self._mounted = data_on_tmpfs and _mount_tmpfs(self.home / "data")
        self.expected: dict[str, str] = {}
        self.daemon = self.start()

    def start(self) -> DaemonProcess:
        """Another daemon in the same home, after the end of the last one."""
        path = os.pathsep.join((str(self.home), *filter(None, [os.environ.get("PYTHONPATH")])))
        environment = ("env", f"PYTHONPATH={path}", f"LOCALSPEC_TEST_CLOCK={self.clock}")
        self.daemon = DaemonProcess(
            self.home,
            command=(*environment, *REAL_DAEMON),
            hang_s=HANG_S,
            slow_client_s=0.5,
            send_buffer=4096,
        )
        return self.daemon

    def close(self) -> None:
        if self.daemon.process.poll() is None:
            assert self.daemon.stop() == 0, self.daemon.log()
        if self._mounted:
            subprocess.run(("umount", self.home / "data"), check=True)
        shutil.rmtree(self.home, ignore_errors=True)

    async def answer(self, client: Raw, id: str, options: Frame) -> str:
        """A short answer, which is the same each time."""
        frame = await client.call(id, "generate", prompt=PROMPT, raw=True, options=options)
        assert "result" in frame, frame
        text: str = frame["result"]["text"]
        model = options.get("model", "")
        assert text == self.expected.setdefault(model, text), "an answer has changed"
        return text

    async def worker(self, client: Raw, model: str = "stdlib-6m") -> psutil.Process:
        """The process that has a model loaded."""
        models = (await client.call("status", "daemon/status"))["result"]["models"]
        return psutil.Process(next(m["pid"] for m in models if m["model"] == model))

    async def begin(self, client: Raw, id: str = "victim") -> psutil.Process:
        """Start a long answer and wait until a random moment of it; return the worker."""
        await client.ask(id, "generate", prompt=QUESTION, options=LONG)
        while (await client.notice("stream/delta"))["params"]["request"] != id:
            pass
        worker = await self.worker(client)
        await self.moment()
        return worker

    async def moment(self) -> None:
        await asyncio.sleep(self.rng.random() * MOMENT_S)  # not to wait for anything: this is when


CLOCK = """
import os, time
_now, _path = time.time, os.environ.get("LOCALSPEC_TEST_CLOCK")
if _path:
    def jumping():
        with open(_path) as file:
            return _now() + float(file.read() or 0)
    time.time = jumping
"""
"""the wall clock of the daemon and its workers goes wrong by the seconds in a file"""


def _mount_tmpfs(place: Path) -> bool:
    place.mkdir(mode=0o700)
    command = ("mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "none", place)
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise Skipped("no file system can be mounted") from None
    return True


Strike = Callable[[Scene, Raw], Awaitable[None]]
