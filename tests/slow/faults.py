"""Faults around a daemon: each kind is injected into a real one, with real models, and its outcome checked.

``python -m tests.slow.faults --runs 20 [NAME…]`` prints a table: kind, runs, survived. A run is survived if
the client that was hit saw the typed error (or the answer) that it must, the answers of a bystander, by
another model, stayed right to the character, and the daemon answers as before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.daemon.harness import raw
from tests.slow.client_faults import (
    cancels_storm,
    client_does_not_read,
    client_is_silent,
    client_vanishes,
    frames_are_hostile,
    version_differs,
)
from tests.slow.daemon_faults import (
    clock_jumps,
    daemon_is_killed,
    daemon_is_stopped,
    disk_is_full,
    queue_is_full,
)
from tests.slow.scene import OTHER, SHORT, Scene, Skipped, Strike
from tests.slow.worker_faults import (
    by_signal,
    frame_is_damaged,
    idle_worker_stops,
    loading_worker_dies,
    loading_worker_stops,
    memory_ends,
    no_memory_to_load,
    socket_is_closed,
    worker_stops,
)
from tests.waiting import soon, until


class Fault(NamedTuple):
    """One kind: what is done, and whether others are to notice nothing at all."""

    name: str
    strike: Strike
    spares_others: bool = True


FAULTS = (
    *(Fault(f"worker gets {n.name}", by_signal(n)) for n in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)),
    Fault("worker hangs", worker_stops),
    Fault("idle worker hangs", idle_worker_stops),
    Fault("worker dies while loading", loading_worker_dies),
    Fault("worker hangs while loading", loading_worker_stops),
    Fault("worker runs out of memory", memory_ends),
    Fault("no memory to load", no_memory_to_load),
    Fault("worker sends a damaged frame", frame_is_damaged),
    Fault("worker's socket is closed", socket_is_closed),
    Fault("daemon is killed", daemon_is_killed, spares_others=False),
    Fault("daemon is stopped", daemon_is_stopped, spares_others=False),
    Fault("disk is full", disk_is_full),
    Fault("queue is full", queue_is_full, spares_others=False),
    Fault("clock jumps", clock_jumps),
    Fault("protocol differs", version_differs),
    Fault("client does not read", client_does_not_read),
    Fault("client vanishes", client_vanishes),
    Fault("client is silent", client_is_silent),
    Fault("client sends hostile frames", frames_are_hostile),
    Fault("client cancels everything", cancels_storm),
)


async def play(scene: Scene, fault: Fault) -> None:
    """One run: raises AssertionError if it was not survived, :class:`Skipped` if it cannot be done here."""
    async with raw(scene.daemon) as client, contextlib.AsyncExitStack() as stack:
        await scene.answer(client, "before", SHORT)
        if fault.spares_others:
            await stack.enter_async_context(bystander(scene))
        await fault.strike(scene, client)
    assert scene.daemon.process.poll() is None, "the daemon has ended"
    async with raw(scene.daemon) as client:
        await scene.answer(client, "after", SHORT)
        status = (await client.call("status", "daemon/status"))["result"]
        known = {model["pid"] for model in status["models"]}
        await until(lambda: {p.pid for p in scene.daemon.workers()} <= known, "no other worker is left")


@asynccontextmanager
async def bystander(scene: Scene) -> AsyncIterator[None]:
    """Inside, another client is answered by another model again and again, and notices nothing."""
    done = asyncio.Event()
    async with raw(scene.daemon) as other:
        await scene.answer(other, "first", OTHER)

        async def ask() -> None:
            number = 0
            while not done.is_set():
                number += 1
                await scene.answer(other, f"answer {number}", OTHER)

        asking = asyncio.create_task(ask())
        try:
            yield
        finally:
            done.set()
            await soon(asking)


class Row(NamedTuple):
    """A line of the table."""

    name: str
    runs: int
    survived: int
    note: str
    seconds: float


async def table_of(faults: tuple[Fault, ...], runs: int, seed: int, show: Callable[[Row], None]) -> list[Row]:
    """Every fault ``runs`` times, on one daemon as far as it lives; ``show`` gets each row as it is done."""
    scene = await asyncio.to_thread(lambda: Scene(seed))
    rows = []
    try:
        for fault in faults:
            rows.append(await _row(scene, fault, runs))
            show(rows[-1])
    finally:
        await asyncio.to_thread(scene.close)
    return rows


async def _row(scene: Scene, fault: Fault, runs: int) -> Row:
    survived, note, times = 0, "", []
    for _ in range(runs):
        began = time.monotonic()
        try:
            await asyncio.wait_for(play(scene, fault), 120)
            survived += 1
        except Skipped as why:
            return Row(fault.name, 0, 0, f"skipped: {why}", 0.0)
        except Exception as error:  # whatever it was, this run was not survived, and the next one is to come
            note = f"{type(error).__name__}: {error}"[:300]
            if scene.daemon.process.poll() is not None:
                scene.start()
        times.append(time.monotonic() - began)
    return Row(fault.name, runs, survived, note, statistics.median(times))


def line(row: Row) -> str:
    count = f"{row.survived}/{row.runs}" if row.runs else "-"
    return f"{row.name:<30} {count:>7} {row.seconds:7.1f} s  {row.note}".rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of faults; otherwise all")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wanted = arguments.names or [""]
    chosen = tuple(fault for fault in FAULTS if any(name in fault.name for name in wanted))
    print(f"{'kind':<30} {'survived':>7} {'median':>8}")

    def show(row: Row) -> None:
        print(line(row), flush=True)

    rows = asyncio.run(table_of(chosen, arguments.runs, arguments.seed, show))
    return int(any(row.survived < row.runs for row in rows))


if __name__ == "__main__":
    sys.exit(main())
