"""The way of a prompt, traced: the files and functions that each process enters, and the calls that lead on.

    python -m assets.bench.trace [--model FILE.gguf]

Runs ``localspec run`` for an answer of 24 tokens in a home of its own, which starts a daemon and a worker.
Each process has a profile function, set by a ``sitecustomize`` module. A hop is a function of localspec on
the stack, or on that of the task's creator, where the prompt leaves the process: at the client's request, at
the daemon's frame to the worker, and at the first forward.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = f"{ROOT / 'localspec'}{os.sep}"
FOLDER = "LOCALSPEC_TRACE"
"""names the directory of the processes' records"""
OPTIMISED = 1
"""flag of the code of a function; that of a class's body has none"""
ENDS = {
    "client/wire.py:request": ("client", "cli/main.py:main"),
    "daemon/workers/worker.py:begin": ("daemon", "daemon/connection.py:_receive_all"),
    "backends/llama_cpp/backend.py:forward": ("worker", "worker/loop.py:run"),
}
"""the functions at which the prompt leaves a process, and the first one of its way there"""
REQUESTS = ("client/client.py:chat", "daemon/workers/worker.py:submit", "engine/engine.py:_prefill")
"""functions of which one is on the way"""


class Trace:
    """The functions that this process enters, and the ways of its prompt."""

    def __init__(self) -> None:
        self.names: dict[CodeType, str] = {}
        self.calls = 0
        self.ways: dict[str, list[str]] = {}
        self.creators: dict[asyncio.Task[Any], list[str]] = {}

    def name_of(self, code: CodeType) -> str:
        """The module and name of a function of localspec; empty for another one, and for a comprehension."""
        is_ours = (
            code.co_filename.startswith(PACKAGE) and code.co_flags & OPTIMISED and "comp>" not in code.co_name
        )
        return f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_name}" if is_ours else ""

    def stack(self, frame: FrameType | None) -> list[str]:
        """The functions of localspec that lead to a frame, also by the creation of the running task."""
        found = []
        while frame is not None:
            found += [name] if (name := self.name_of(frame.f_code)) else []
            frame = frame.f_back
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        before = self.creators.get(task, []) if task is not None else []
        return list(dict.fromkeys([*before, *reversed(found)]))

    def on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not (name := self.name_of(frame.f_code)):
            return
        self.names[frame.f_code] = name
        self.calls += 1
        if name in ENDS:
            process, first = ENDS[name]
            way = self.stack(frame)
            if process not in self.ways and first in way and any(each in way for each in REQUESTS):
                self.ways[process] = way[way.index(first) :]

    def write(self, folder: str) -> None:
        record = {"names": sorted(set(self.names.values())), "calls": self.calls, "ways": self.ways}
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(record))


def begin() -> None:
    """Trace this process from here on; its record is written at its end."""
    trace, create = Trace(), asyncio.BaseEventLoop.create_task

    def create_task(self: Any, *arguments: Any, **more: Any) -> Any:
        task = create(self, *arguments, **more)
        trace.creators[task] = trace.stack(sys._getframe(1))
        return task

    asyncio.BaseEventLoop.create_task = create_task  # type: ignore[method-assign]
    atexit.register(trace.write, os.environ[FOLDER])
    sys.setprofile(trace.on_event)
    threading.setprofile(trace.on_event)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="bundled")
    model = parser.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text("from assets.bench.trace import begin\n\nbegin()\n")
        settings = {"LOCALSPEC_HOME": f"{folder}/home", FOLDER: folder}
        environment = {**os.environ, **settings, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        command = (sys.executable, "-m", "localspec")
        prompt = ("run", "--max-tokens", "24", "-m", model, "What does textwrap.dedent do?")
        subprocess.run((*command, *prompt), env=environment, check=True, stdout=subprocess.DEVNULL)
        quiet = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        subprocess.run((*command, "daemon", "stop"), env=quiet, check=True, stdout=subprocess.DEVNULL)
        records = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    report(records)


def report(records: list[dict[str, Any]]) -> None:
    """Print a line for each process, with its way below, and the sums."""
    print(f"{'process':10}{'files':>7}{'functions':>11}{'calls':>9}{'hops':>6}")
    files, hops = set[str](), 0
    for process in dict(ENDS.values()):
        for record in (each for each in records if process in each["ways"]):
            way = record["ways"][process]
            entered = {name.partition(":")[0] for name in record["names"]}
            print(f"{process:10}{len(entered):7}{len(record['names']):11}{record['calls']:9}{len(way):6}")
            print("".join(f"    {name}\n" for name in way), end="")
            files |= entered
            hops += len(way)
    print(f"{'together':10}{len(files):7}{hops:26}")


if __name__ == "__main__":
    main()
