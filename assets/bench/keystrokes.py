"""The time of a completion at each of 200 keystrokes in a file of 300 lines.

    python -m assets.bench.keystrokes [--strokes 200] [-m MODEL]

A daemon of its own gets requests for the same strokes three times: ``as it is``; with the suffix's far end
changed at every stroke, which no prompt contains but the key of a cached suggestion does, so that the model
computes each (``asked anew``); and, at every tenth keystroke as it takes long, with the line behind the
cursor changed as well, so that little of the prompt can be reused (``read anew``). Without ``-m`` it is the
bundled model.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import statistics
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from assets.bench.servers import measure_costs, own_home
from localspec.client import Client, connect
from localspec.models.catalogue import BUNDLED
from localspec.protocol.messages import Completions
from localspec.protocol.options import Options

LINES, MIDDLE = 300, 150
TOKENS = 32
EVERY = {"as it is": 1, "asked anew": 1, "read anew": 10}
"""the variants, and the keystrokes between two requests of each"""


class Stroke(NamedTuple):
    """The answer at one keystroke, and the seconds until it came."""

    seconds: float
    answer: Completions


class File(NamedTuple):
    """A file: the text before the cursor at first, the text to type, and that behind the cursor."""

    before: str
    typed: str
    behind: str


def file_of(strokes: int) -> File:
    """The standard library's textwrap, cut in the middle."""
    lines = inspect.getsource(textwrap).splitlines(keepends=True)[:LINES]
    before, behind = "".join(lines[:MIDDLE]), "".join(lines[MIDDLE:])
    return File(before, behind[:strokes], behind[strokes:])


def parts_of(file: File, n: int, variant: str) -> tuple[str, str]:
    """Prefix and suffix after ``n`` keystrokes."""
    prefix, suffix = file.before + file.typed[:n], file.behind
    if variant != "as it is":
        suffix += f"# {variant} {n}\n"
    if variant == "read anew":
        suffix = f"  # {n}\n" + suffix
    return prefix, suffix


async def complete(client: Client, file: File, n: int, variant: str) -> Stroke:
    prefix, suffix = parts_of(file, n, variant)
    options = Options(max_tokens=TOKENS)
    started = time.perf_counter()
    stream = client.complete(prefix, suffix, path=f"/{variant}.py", language="python", options=options)
    answer = await stream.result()
    return Stroke(time.perf_counter() - started, answer)


async def type_all(client: Client, file: File, variant: str) -> None:
    """Request completions at the variant's keystrokes, one after the other, and print the results."""
    strokes = []
    for n in range(EVERY[variant], len(file.typed) + 1, EVERY[variant]):
        strokes.append(await complete(client, file, n, variant))
        print(f"\r{variant}: {n} of {len(file.typed)}  ", end="", file=sys.stderr)
    print(file=sys.stderr)
    seconds = sorted(stroke.seconds for stroke in strokes)
    sources = Counter(stroke.answer.source for stroke in strokes)
    computed = [stroke.answer for stroke in strokes if stroke.answer.source == "model"]
    cached = [each.result.cached_tokens for each in computed]
    read = [each.reprefilled_tokens for each in computed]
    print(
        f"{variant:10}  median {1000 * statistics.median(seconds):6.0f} ms, 19 of 20 within"
        f" {1000 * seconds[len(seconds) * 19 // 20]:6.0f} ms;  by {_listed(sources)};  of a prompt"
        f" {_median(cached)} tokens taken over, {_median(read)} read (medians)"
    )


def _listed(sources: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sources.most_common())


def _median(numbers: list[int]) -> str:
    return f"{statistics.median(numbers):.0f}" if numbers else "–"


async def play(strokes: int) -> None:
    file = file_of(strokes)
    client = await connect()
    async with client:
        await client.open(private=True).result()
        for variant in EVERY:
            await type_all(client, file, variant)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--strokes", type=int, default=200)
    given = parser.parse_args()
    model = BUNDLED if given.model is None else str(given.model.resolve())
    with own_home(f'[options]\nmodel = "{model}"\n'):
        measure_costs(model)
        asyncio.run(play(given.strokes))


if __name__ == "__main__":
    main()
