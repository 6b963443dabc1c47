"""Typing with pauses: the cost of completions that wait for a pause, and of those that begin at once.

    python -m assets.bench.typing_pauses [--strokes 300] [-m MODEL]

Keys come at gaps around 150 ms, and every 15 keys there is a pause of 2 s; each key requests a completion,
as an editor does. A daemon as it is, and one that begins each at once, get the same. Printed are the
processor's seconds (the worker's), and the time from the last key before a pause to the completion. Without
``-m`` it is the bundled pair, inflated to half a billion parameters (made once, into the user's cache).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

import psutil

from assets.bench.keystrokes import TOKENS, file_of, measure
from localspec.bench.bench import Order, model_paths
from localspec.bench.stand import TARGET
from localspec.client import Client, connect
from localspec.protocol.options import Options

GAP_S, SPREAD, PAUSE_S, EVERY = 0.15, 0.5, 2.0, 15
"""the median gap of keys, its spread (of a log-normal), the pause, and the keys between pauses"""
AS_IT_IS = (sys.executable, "-m", "localspec.daemon")
AT_ONCE = (
    sys.executable,
    "-c",
    "from localspec.daemon import __main__; from localspec.daemon.inline import pace; "
    "pace.LONGEST_S = 0.0; __main__.main()",
)


async def type_all(client: Client, strokes: int) -> None:
    """Type, and print the cost."""
    file, rng, loop = file_of(strokes), random.Random(1), asyncio.get_running_loop()
    (model,) = (await client.status()).models
    began, seconds = processor_s(model.pid), []

    async def ask(n: int) -> float | None:
        sent = loop.time()
        stream = client.complete(
            file.before + file.typed[:n], file.behind, path="/typed.py", options=Options(max_tokens=TOKENS)
        )
        answer = await stream.result()
        return None if answer.result.finish_reason == "cancelled" else loop.time() - sent

    tasks = []
    for n in range(1, strokes + 1):
        tasks.append(asyncio.create_task(ask(n)))
        pause = n % EVERY == 0
        await asyncio.sleep(PAUSE_S if pause else min(rng.lognormvariate(0, SPREAD) * GAP_S, 0.9))
        if pause and tasks[-1].done() and (took := await tasks[-1]) is not None:
            seconds.append(took)
    shown = sum(answer is not None for answer in await asyncio.gather(*tasks))
    print(
        f"  {processor_s(model.pid) - began:6.1f} s of the processor, {shown} of {strokes} keys answered;"
        f" at {len(seconds)} of {strokes // EVERY} pauses, median {1000 * statistics.median(seconds):.0f} ms"
    )


def processor_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def play(command: tuple[str, ...], strokes: int) -> None:
    async with await connect(command=command) as client:
        await client.open_session(private=True)
        await type_all(client, strokes)
        await client.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--strokes", type=int, default=300)
    given = parser.parse_args()
    model = given.model or model_paths(Order(quick=True), lambda what, fraction: None)[TARGET]
    for name, command in (("as it is", AS_IT_IS), ("at once", AT_ONCE)):
        print(name)
        with tempfile.TemporaryDirectory() as home:
            os.environ["LOCALSPEC_HOME"] = home
            config = Path(home, "config", "config.toml")
            config.parent.mkdir()
            config.write_text(f'[options]\nmodel = "{model.resolve()}"\n', encoding="utf-8")
            measure(model)
            asyncio.run(play(command, given.strokes))


if __name__ == "__main__":
    main()
