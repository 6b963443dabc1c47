"""The gain in tokens a second of four requests that speculate together over one after the other.

    python -m assets.bench.together [--runs 5] [--workload edit-short] [-m MODEL]

Each run plays the same requests both ways, in one engine each that begins empty; the texts must be
the same. Without ``-m`` it is the bundled pair, inflated to half a billion parameters (made once, into the
user's cache).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.bench.bench import Order, model_paths
from localspec.bench.contestant import own_contestants
from localspec.bench.stand import TARGET, Stand, as_contestant, load_stand
from localspec.bench.workload import load_workload, request_of
from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence as Running
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.requests import Request

AT_ONCE = 4


class Played(NamedTuple):
    """Tokens a second over all requests, and the tokens of each answer."""

    speed: float
    answers: list[list[int]]


def play(engine: Engine, requests: Sequence[Request], at_once: int) -> Played:
    """Play all of ``requests``, at most ``at_once`` of them at a time."""
    waiting, running = list(requests), list[Running]()
    done: list[Running] = []
    started = time.perf_counter()
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(engine.submit(waiting.pop(0)))
        engine.step()
        done += [each for each in running if each.ended]
        running = [each for each in running if not each.ended]
    seconds = time.perf_counter() - started
    done.sort(key=lambda each: each.id)
    answers = [each.tokens[each.prompt_length :] for each in done]
    return Played(sum(map(len, answers)) / seconds, answers)


def compare(stand: Stand, requests: Sequence[Request], runs: int) -> None:
    """Print the speeds of both ways and their ratio, a line a proposer."""
    for contestant in own_contestants([role for role in stand.drafts]):
        if contestant.name not in ("plain", "auto"):
            continue
        ours = [as_contestant(request, contestant) for request in requests]
        ratios, differing = [], 0
        for _ in range(runs):
            with stand.engine(contestant) as engine:
                alone = play(engine, ours, 1)
            with stand.engine(contestant) as engine:
                together = play(engine, ours, AT_ONCE)
            ratios.append(together.speed / alone.speed)
            differing += sum(a != b for a, b in zip(alone.answers, together.answers, strict=True))
            print(f"  {contestant.name}: {alone.speed:.1f} → {together.speed:.1f} tokens/s", file=sys.stderr)
        print(
            f"{contestant.name}: {len(ours)} requests, {AT_ONCE} at once: {statistics.median(ratios):.2f}x"
            f" (from {min(ratios):.2f} to {max(ratios):.2f}) the tokens per second of one after the other;"
            f" {differing} texts differ"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workload", default="edit-short")
    parser.add_argument("--cases", type=int, default=AT_ONCE)
    given = parser.parse_args()

    def tell(what: str, fraction: float) -> None:
        print(f"\r{what}: {fraction:.0%}  ", end="", file=sys.stderr)

    config = EngineConfig(n_ctx=2048, parallel=AT_ONCE)
    paths = model_paths(Order(target=given.model), tell)
    first = next((role for role in paths if role != TARGET), None)
    drafts = {first: paths[first]} if first is not None else {}
    stand = load_stand(paths[TARGET], drafts, config, tell)
    stand.measure_costs(tell)
    print(file=sys.stderr)
    cases = load_workload(given.workload)[: given.cases]
    requests = [request_of(case.turns[0]) for case in cases]
    requests = [
        msgspec.structs.replace(r, options=msgspec.structs.replace(r.options, remember=False))
        for r in requests
    ]
    compare(stand, requests, given.runs)
    stand.close()


if __name__ == "__main__":
    main()
