"""The sweep: prompt lookup, the n-gram memory and a draft model at fixed lengths, on the edits."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.results import PLAIN, Contestant
from localspec.protocol.proposer_kinds import DRAFT, LOOKUP, MEMORY

LENGTHS = (2, 4, 6, 8)
NGRAM = 3


def sweep_contestants(drafts: Sequence[str]) -> list[Contestant]:
    """Lookup n=3, memory and the first draft model at fixed lengths, with plain decoding to compare."""
    found = [Contestant(PLAIN)]
    for k in LENGTHS:
        found.append(Contestant(f"lookup n=3 k={k}", LOOKUP.name, k, ngram=NGRAM))
        found.append(Contestant(f"memory k={k}", MEMORY.name, k))
        found += [Contestant(f"draft k={k}", DRAFT.name, k, draft=label) for label in drafts[:1]]
    return found


def chosen_for_sweep(labels: Sequence[str], contestants: Sequence[Contestant]) -> list[Contestant]:
    """The sweep's contestants whose proposers take part in this run."""
    taking_part = {contestant.proposer for contestant in contestants}
    return [c for c in sweep_contestants(labels) if c.proposer in taking_part]
