"""The gain of verifying the drafts of several proposers in one round, as branches of a tree.

Recorded answers are decoded again with prompt lookup and the n-gram memory, with every fixed length, on a
cost curve. ``one`` verifies one draft a round: lookup's, or memory's where lookup has none. ``two``
verifies both where they begin differently, and keeps the better one; the tree's attention mask and the
copying of its KV entries count as free, so that this is the largest possible gain of two.

    localspec bench --record answers.jsonl
    python -m assets.bench.several_proposers answers.jsonl [--cost 1=14.4,2=33,4=46,5=59]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from localspec.bench.cheap import cheap_makers
from localspec.bench.curve import EXAMPLE, CostLine, parse_costs
from localspec.bench.log import Log, read_logs
from localspec.bench.oracle import greedy_sampler, plain_seconds
from localspec.speculation.draft import Ask, Draft, shared_length
from localspec.speculation.proposer import Proposer

LENGTHS = (1, 2, 3, 4, 6, 8)


class Tally(NamedTuple):
    """Counts of one way to decode: rounds, those with two branches, those where the second was better."""

    rounds: int = 0
    both: int = 0
    second: int = 0
    seconds: float = 0.0

    def __add__(self, other: tuple[float, ...]) -> Tally:  # type: ignore[override]
        return Tally(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[arg-type]


def branches_of(drafts: Sequence[Draft], two: bool) -> list[tuple[int, ...]]:
    """The drafts that are verified: the first one, and where ``two`` the next that begins differently."""
    found: list[tuple[int, ...]] = []
    for draft in drafts:
        if draft.tokens and draft.tokens[0] not in {branch[0] for branch in found}:
            found.append(draft.tokens)
    return found[: 1 + two]


def decode(
    log: Log, proposers: Sequence[Proposer], request: int, *, k: int, cost: CostLine, two: bool
) -> Tally:
    """Decode one recorded answer again."""
    output, context, sampler = log.output, [*log.prompt, *log.output[:1]], greedy_sampler()
    position, tally = 1, Tally()
    while position < len(output):
        room = min(k, len(output) - position - 1)
        ask = Ask(request, context, room, sampler, position)
        drafts = [proposer.propose([ask])[0].cut(room) for proposer in proposers]
        branches = branches_of(drafts, two)
        right = [shared_length(branch, output[position:]) for branch in branches]
        width = 1 + sum(map(len, branches))
        tally += Tally(1, len(branches) > 1, len(right) > 1 and right[1] > right[0], cost(width))
        for proposer, draft in zip(proposers, drafts, strict=True):
            if draft.tokens:
                proposer.observe(request, draft, shared_length(draft.tokens, output[position:]))
        context += output[position : position + max(right, default=0) + 1]
        position += max(right, default=0) + 1
    for proposer in proposers:
        proposer.stop(request)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path)
    parser.add_argument("--cost", type=parse_costs, default=EXAMPLE)
    arguments = parser.parse_args()
    logs = read_logs(arguments.log)
    print(f"{'workload':12} {'k':>2} {'one':>7} {'two':>7} {'two branches':>13} {'second better':>14}")
    for workload in dict.fromkeys(log.workload for log in logs):
        mine = [log for log in logs if log.workload == workload]
        plain = sum(plain_seconds(len(log.output), arguments.cost) for log in mine)
        for k in LENGTHS:
            tallies = []
            for two in (False, True):
                tally = Tally()
                with cheap_makers() as makers:
                    proposers = [make() for make in makers.values()]
                    for request, log in enumerate(mine):
                        tally += decode(log, proposers, request, k=k, cost=arguments.cost, two=two)
                tallies.append(tally)
            one, both = tallies
            shares = (both.both / max(both.rounds, 1), both.second / max(both.rounds, 1))
            print(
                f"{workload:12} {k:2} {plain / one.seconds:6.2f}x {plain / both.seconds:6.2f}x "
                f"{shares[0]:13.1%} {shares[1]:14.1%}"
            )


if __name__ == "__main__":
    main()
