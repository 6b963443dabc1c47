"""Kills a writer of a small table again and again at random moments, and looks at what it leaves.

``python -m tests.memory.killing FOLDER KILLS SEED``. A process of its own, because it forks: a fork of one
with threads may deadlock.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

from localspec.memory.table import NgramTable
from localspec.memory.table_files import USER, TableFiles
from tests.memory.tables import files_in, words

BITS = 10
UNIVERSE = [value * 0x9E3779B97F4A7C15 % (1 << 64) for value in range(1, 601)]
"""the n-grams that are ever taught"""
CHECKED = 100
LONGEST_LIFE_S = 0.008


def right(value: int) -> tuple[int, int]:
    """The two tokens that are taught for an n-gram."""
    return value % 50_000, value % 50_000 + 1


def live(files: TableFiles, rng: random.Random, sink: int) -> None:
    """Write to tables until killed; the pipe ``sink`` gets a byte for each."""
    while True:
        table = files.open_or_create(USER, None)
        os.write(sink, b".")
        for _ in range(rng.randrange(1, 10)):
            write(table, rng)
        files.sources(USER).add(f"source {rng.randrange(20)}")
        chance = rng.random()
        if chance < 0.3:
            files.forget(USER)
        elif chance < 0.5:
            files.forget_source(USER, "source 1")


def write(table: NgramTable, rng: random.Random) -> None:
    some = rng.sample(UNIVERSE, 20)
    tokens = [right(value)[rng.randrange(2)] for value in some]
    table.insert(words(some), words(tokens), 3, rng.randrange(1, 20))
    table.count(20)
    found = table.find(some[:1])
    if found is not None:
        table.credit(found.slot, found.token, accepted=rng.random() < 0.5)


def check(files: TableFiles, rng: random.Random) -> int:
    """Open what was left; returns how many n-grams were found, all of them with a right token."""
    with files.lock():
        table = files._settle(USER)
    if table is None:
        return 0
    found = 0
    for value in rng.sample(UNIVERSE, CHECKED):
        recall = table.find([value])
        if recall is not None:
            assert recall.token in right(value), (value, recall)
            found += 1
    table.close()
    return found


def kill_one(files: TableFiles, rng: random.Random) -> None:
    """Kill a writer a moment after it had a table."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        with contextlib.suppress(KeyboardInterrupt):
            live(files, random.Random(rng.getrandbits(64)), sink)
        os._exit(1)
    os.close(sink)
    with open(source, "rb", buffering=0) as pipe:
        pipe.read(1)
        time.sleep(rng.random() * LONGEST_LIFE_S)  # not to wait for anything: this is when it is killed
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"the writer ended by itself: {status}"


def main(folder: Path, kills: int, seed: int) -> None:
    rng, found = random.Random(seed), 0
    files = files_in(folder, bits=BITS)
    started = time.monotonic()
    for _ in range(kills):
        kill_one(files, rng)
        found += check(files, rng)
    print(kills, found, f"{kills / (time.monotonic() - started):.0f}/s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
