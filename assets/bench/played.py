"""Play the recorded answers at the costs of other machines: what `auto` would give there.

    python -m assets.bench.played [ANSWERS.jsonl]

Counts of tokens are those of the real pair (``record.py``); times are those of the costs in machines.toml,
and of a draft model whose forward takes so much of the target's. Beyond the last width the costs go on in a
straight line. Where the first forwards of a width take longer, the two behind a change do.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from statistics import median

import msgspec

from assets.bench.record import TAUGHT
from assets.bench.simulate import HINDSIGHT, CostLine, Log, read_logs, simulate
from localspec.engine.round import LONGEST_K
from localspec.protocol.options import AUTO

ANSWERS = Path(__file__).parents[2] / "tests" / "bench" / "data" / "answers.jsonl"
WORKLOADS = ("edit", "four turns", "chat", "code", "json", "warm memory")
SHARES = (None, 0.3, 0.1)


class Machine(msgspec.Struct):
    """One machine of ``machines.toml``."""

    name: str
    source: str
    costs: dict[int, float]
    first: dict[int, float] = {}


MACHINES = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("machines.toml").read_text("utf-8"))["machine"],
    list[Machine],
    strict=False,
)


def speeds(logs: list[Log], name: str, machine: Machine, share: float | None) -> list[float]:
    """By workload, the median speed of the answers as a multiple of plain decoding; then the least of all."""
    cost, first = CostLine(machine.costs), CostLine(machine.first) if machine.first else None
    plays = simulate(logs, name, k=LONGEST_K, cost=cost, draft_share=share, first=first)
    found: dict[str, list[float]] = {}
    for log, played in zip(logs, plays, strict=True):
        if played.speed is not None and log.workload != TAUGHT:
            found.setdefault(log.workload, []).append(played.speed)
    return [*(median(found[each]) for each in WORKLOADS), min(min(each) for each in found.values())]


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    logs = read_logs(Path(sys.argv[1]) if sys.argv[1:] else ANSWERS)
    print(row("costs of", "draft model", *WORKLOADS, "slowest answer"))
    print(row(*["---"] * (len(WORKLOADS) + 3)))
    for machine in MACHINES:
        for share in SHARES:
            drafter = "none" if share is None else f"{share:g} of the target's time"
            figures = (f"{each:.2f}x" for each in speeds(logs, AUTO, machine, share))
            print(row(f"{machine.name} ({machine.source})", drafter, *figures), flush=True)
        best = (f"{each:.2f}x" for each in speeds(logs, HINDSIGHT, machine, None))
        print(row(f"{machine.name}", "none, best choice in hindsight", *best), flush=True)


if __name__ == "__main__":
    main()
