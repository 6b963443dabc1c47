"""Play the recorded answers at the costs of other machines: what `auto` would give there.

    python -m assets.bench.played [ANSWERS.jsonl]

Counts of tokens are those of the real pair (``record.py``); times are those of the published costs below, and
of a draft model whose forward takes so much of the target's. Beyond the last published width the costs go on
in a straight line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from assets.bench.record import TAUGHT
from assets.bench.simulate import HINDSIGHT, CostLine, Log, read_logs, simulate
from localspec.engine.round import LONGEST_K
from localspec.protocol.options import AUTO

ANSWERS = Path(__file__).parents[2] / "tests" / "bench" / "data" / "answers.jsonl"
WORKLOADS = ("edit", "four turns", "chat", "code", "json", "warm memory")
SHARES = (None, 0.3, 0.1)


class Machine(NamedTuple):
    """The costs of a forward by its width, as multiples of one token's; ``source`` names the measurement."""

    name: str
    source: str
    costs: dict[int, float]


MACHINES = (
    Machine(
        "two cores of an AMD EPYC, 1.5B Q4_K_M",
        "measured",
        {
            1: 1,
            2: 1.72,
            3: 2.31,
            4: 2.68,
            5: 3.12,
            6: 3.77,
            7: 4.39,
            8: 4.72,
            10: 5.76,
            12: 6.71,
            16: 6.98,
            21: 9.7,
        },
    ),
    Machine("M4 Pro, MLX, 4 bits", "mlx#3839", {1: 1, 2: 1.03, 3: 1.22, 4: 1.47, 6: 2.07, 8: 2.69}),
    Machine("M3 Max, MLX, 4 bits", "mlx#3863", {1: 1, 2: 1, 4: 1.28, 6: 2.04, 8: 2.5, 10: 3.94, 32: 3.98}),
    Machine("M5 Max, MLX, 70B, 4 bits", "mlx#3791", {1: 1, 3: 1.12, 5: 1.42, 8: 2.21, 12: 3.18, 16: 3.89}),
    Machine(
        "NVIDIA H100, llama.cpp, 7B Q4_K_M",
        "measured, random weights",
        {1: 1, 2: 1.12, 3: 1.32, 4: 1.56, 5: 1.78, 6: 1.96, 8: 2.34, 12: 2.06, 16: 2.15, 24: 2.45, 32: 2.73},
    ),
    Machine(
        "NVIDIA H100, llama.cpp, 1.5B Q4_K_M",
        "measured, random weights",
        {1: 1, 2: 1.18, 3: 1.39, 4: 1.61, 5: 1.71, 6: 1.86, 8: 2.12, 12: 2.5, 16: 2.7, 24: 3.1, 32: 3.46},
    ),
    Machine(
        "RTX 3090, llama.cpp, 8B Q4_0",
        "llama.cpp#15802",
        {1: 1, 2: 1.12, 3: 1.2, 4: 1.33, 5: 1.54, 6: 1.74, 7: 1.96, 8: 2.15},
    ),
)


def speeds(logs: list[Log], name: str, machine: Machine, share: float | None) -> list[float]:
    """By workload, the median speed of the answers as a multiple of plain decoding; then the least of all."""
    plays = simulate(logs, name, k=LONGEST_K, cost=CostLine(machine.costs), draft_share=share)
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
