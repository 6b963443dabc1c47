"""The special workloads, whose cases are those of ordinary ones."""

from __future__ import annotations

from itertools import chain, zip_longest

import msgspec

from localspec.bench.workload import Case, load_workload

RESTART, TWO_UP, SWEEP = "warm-restart", "two-up", "sweep"
SPECIAL = {
    RESTART: ("edit-long",),
    TWO_UP: ("chat", "fim"),
    SWEEP: ("edit-short", "edit-long"),
}
"""the ordinary workloads that a special one has its cases of"""


def load_special(name: str) -> tuple[Case, ...]:
    """The cases of all sources, in turns."""
    in_turns = chain.from_iterable(zip_longest(*map(load_workload, SPECIAL[name])))
    return tuple(msgspec.structs.replace(case, workload=name) for case in in_turns if case is not None)
