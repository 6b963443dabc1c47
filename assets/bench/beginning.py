"""How long it takes from ``localspec chat`` to a prompt that takes keys, on a daemon that runs already.

    python -m assets.bench.beginning [--times 10] [--json]

The chat is started in terminals of 100x30, one after the other, on a daemon and in a home of their own; the
first time is not counted. The table tells, from the start of the process, when the first picture with the
prompt came, when a key that was pressed then was seen, and when it was seen which model answers: the least,
the median and the most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time

import msgspec
import pexpect

from localspec.client import connect

KEYS = "QZ"
"""what is typed; the chat itself says no such thing"""
SIGNS = {"prompt": "sk something", "key": KEYS, "model": "stdlib-6m"}
"""what is seen then"""
LIMIT_S = 60.0


class Beginning(msgspec.Struct, frozen=True):
    """Seconds from the start of the process."""

    prompt: float
    key: float
    model: float


def begin() -> Beginning:
    """Start a chat, look at it, and leave it."""
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
    """The measurements, for a person to read."""
    lines = [f"{'seen':<8}{'least':>9}{'median':>9}{'most':>9}"]
    for name in SIGNS:
        seconds = [getattr(each, name) for each in found]
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        lines.append(f"{name:<8}" + "".join(f"{each:>7.2f} s" for each in figures))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="how often it is started")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")
    said = parser.parse_args()
    found = measure(said.times)
    print(msgspec.json.encode(found).decode() if said.json else table(found))


if __name__ == "__main__":
    main()
