"""The time from ``localspec chat`` to a prompt that takes keys, on a daemon that runs already.

    python -m assets.bench.beginning [--times 10]

The chat is started in terminals of 100x30, one after the other, on a daemon and in a home of their own; the
first time is not counted. The table has the seconds from the start of the process to the first screen with
the prompt, to the echo of a key that was pressed then, and to the name of the model: least, median and most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

import pexpect

from localspec.client import connect

KEYS = "QZ"
"""keys that are typed, a text that the chat itself does not show"""
SIGNS = {"prompt": "sk something", "key": KEYS, "model": "stdlib-6m"}
"""texts on the screen that are timed"""
LIMIT_S = 60.0


class Beginning(NamedTuple):
    """Seconds from the start of the process."""

    prompt: float
    key: float
    model: float


def begin() -> Beginning:
    """Start a chat, time its screen, and leave it."""
    started, seen, screen = time.perf_counter(), {}, ""
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    command = ["-m", "localspec", "chat"]
    chat = pexpect.spawn(
        sys.executable, command, env=environment, dimensions=(30, 100), timeout=LIMIT_S, encoding="utf-8"
    )
    chat.delaybeforesend = None
    while len(seen) < len(SIGNS):
        screen += chat.read_nonblocking(65536, timeout=LIMIT_S)
        for name in (name for name, sign in SIGNS.items() if name not in seen and sign in screen):
            seen[name] = time.perf_counter() - started
            if name == "prompt":
                chat.send(KEYS)
    chat.sendcontrol("q")
    chat.expect(pexpect.EOF)
    chat.close()
    return Beginning(**seen)


async def stop_the_daemon() -> None:
    async with await connect() as client:
        await client.shutdown()


def measure(times: int) -> list[Beginning]:
    """Start a daemon, and chats on it."""
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        try:
            return [begin() for _ in range(times + 1)][1:]
        finally:
            asyncio.run(stop_the_daemon())


def table(found: list[Beginning]) -> str:
    """The measurements as a table."""
    lines = [f"{'seen':<8}{'least':>9}{'median':>9}{'most':>9}"]
    for name in SIGNS:
        seconds = [getattr(each, name) for each in found]
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        lines.append(f"{name:<8}" + "".join(f"{each:>7.2f} s" for each in figures))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="number of starts")
    print(table(measure(parser.parse_args().times)))


if __name__ == "__main__":
    main()
