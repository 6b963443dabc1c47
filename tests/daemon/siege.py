"""A daemon under attack beside a client that behaves well, whose streams must be whole all the while."""

from __future__ import annotations

import asyncio
import re
from itertools import islice

import psutil

from tests.daemon.attack import Attacker, Tally, attack
from tests.daemon.harness import DaemonProcess, Raw, raw, texts
from tests.waiting import DEADLINE_S, POLL_S, soon

AT_ONCE, WARM_UP = 24, 100
CALM = {"model": "calm"}
"""a worker of its own: those of others are killed and take turns"""
MIB = 1024 * 1024


async def behave(client: Raw, over: asyncio.Event) -> int:
    """Send requests until ``over`` is set, beside one that always runs; return the count of whole answers."""
    await client.ask("held", "generate", prompt="stall", options=CALM)
    count = 0
    while not over.is_set():
        count += 1
        answer = await client.call(count, "generate", prompt="flood 40 25", options=CALM)
        assert texts(client.seen, count) == answer["result"]["text"] == "x" * 1000
        client.seen = [frame for frame in client.seen if frame.get("params", {}).get("request") == "held"]
    await client.notify("$/cancelRequest", id="held")
    held = await client.response("held")
    assert held["result"]["finish_reason"] == "cancelled"
    assert texts(client.seen, "held") == held["result"]["text"] == "stalling"
    return count


async def alone(client: Raw) -> None:
    """Wait until the daemon has no client but this one."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            status = (await client.call("alone", "daemon/status"))["result"]
            if status["connections"] == 1 and status["running"] == 0:
                return
            await asyncio.sleep(POLL_S)


def faults(log: str) -> list[str]:
    """Return the log's warnings and errors, without expected ones and those of killed workers."""
    known = re.compile(
        r" INFO | ERROR localspec\.daemon\.worker: worker \d+ (was ended|exited)| WARNING localspec"
    )
    return [line for line in log.splitlines() if re.match(r"\d{4}-", line) and not known.search(line)]


async def besiege(daemon: DaemonProcess, n: int, seed: int, *, patient: bool = False) -> str:
    """``n`` connections made at random from ``seed``; returns what was tried and what the daemon took."""
    process, over = psutil.Process(daemon.process.pid), asyncio.Event()
    async with raw(daemon) as client:
        # Whatever is loaded and allocated once is there before anybody counts.
        await client.call("first", "generate", prompt="one", options=CALM)
        await attack(
            daemon, islice(Attacker(daemon.token, seed + 1, patient=False), WARM_UP), at_once=AT_ONCE
        )
        await alone(client)
        files, resident = process.num_fds(), process.memory_info().rss
        behaving = asyncio.create_task(behave(client, over))
        tally: Tally = await attack(
            daemon, islice(Attacker(daemon.token, seed, patient=patient), n), at_once=AT_ONCE
        )
        over.set()
        answered = await soon(behaving)
        await alone(client)
        more, grown = process.num_fds() - files, process.memory_info().rss - resident
    assert daemon.process.poll() is None, daemon.log()[-2000:]
    assert (found := faults(daemon.log())) == [], found
    assert not tally.answers.keys() & {"500", "close 1011"}, "an internal error"
    assert answered > 0 and tally.tried.total() == n
    assert more <= 2 and grown < 30 * MIB, (more, grown)
    cost = f"{more} files, {grown / MIB:.1f} MiB more"
    return f"seed {seed}: {tally}; 0 crashes, 0 hangs; beside them {answered} whole answers; {cost}"
