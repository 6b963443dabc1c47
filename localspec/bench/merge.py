"""Several documents as one: a long benchmark can be measured in parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from typing import TypeVar

import msgspec

from localspec.bench.figures import figures_of
from localspec.bench.goals import goals_of
from localspec.bench.results import Results, Run
from localspec.errors import InvalidOptions

T = TypeVar("T")


def merged(documents: Sequence[Results]) -> Results:
    """One document with the runs of all; a single one is returned as it is.

    A workload that was measured in several goes on counting its repeats, so that still only what ran
    side by side is compared. What is measured once per document, such as curves, is the first one's
    that has it. Raises :class:`InvalidOptions` where machine, versions, models or context differ, or the
    cases of a workload that several have, and where two are, or hold, the same run.
    """
    first, *others = documents
    if not others:
        return first
    for other in others:
        _check_alike(first, other)
    for one, other in combinations(documents, 2):
        _check_same_cases(one, other)
        _check_independent(one, other)
    whole = msgspec.structs.replace(
        first,
        duration_s=sum(d.duration_s for d in documents),
        peak_memory=max(d.peak_memory for d in documents),
        stopped=next((d.stopped for d in documents if d.stopped), None),
        setting=msgspec.structs.replace(
            first.setting,
            runs=max(d.setting.runs for d in documents),
            quick=any(d.setting.quick for d in documents),
            workloads=tuple(_once(w for d in documents for w in d.setting.workloads)),
            cases=min((d.setting.cases for d in documents if d.setting.cases), default=None),
        ),
        contestants=_once(c for d in documents for c in d.contestants),
        runs=_runs(documents),
        ceilings=_once(
            (c for d in documents for c in d.ceilings), lambda c: (c.workload, c.case, c.turn, c.draft)
        ),
        curves=_once((c for d in documents for c in d.curves), lambda c: c.role),
        propose_costs=_once(
            (c for d in documents for c in d.propose_costs), lambda c: (c.proposer, c.context)
        ),
        overheads=_once((o for d in documents for o in d.overheads), lambda o: (o.model, o.contestant)),
        two_up=[two_up for d in documents for two_up in d.two_up],
        restarts=[restart for d in documents for restart in d.restarts],
        failures={name: why for d in documents for name, why in d.failures.items()},
        left_out=_left_out(documents),
    )
    whole.figures = figures_of(whole)
    whole.goals = goals_of(whole)
    return whole


def _check_alike(one: Results, other: Results) -> None:
    for what, differs in (
        ("machines or versions", one.machine != other.machine),
        ("models", _roles(one) != _roles(other)),
        ("context lengths", one.setting.n_ctx != other.setting.n_ctx),
    ):
        if differs:
            raise InvalidOptions(
                f"the results of {one.started} and {other.started} are of different {what}",
                "Give --from files of one installation, machine and pair of models.",
            )


def _check_same_cases(one: Results, other: Results) -> None:
    """Speeds and shares of different requests have no common median."""
    both = [w for w in one.setting.workloads if w in other.setting.workloads]
    if both and _cases(one) != _cases(other):
        raise InvalidOptions(
            f"the results of {one.started} and {other.started} are of different cases of {both[0]}",
            "Measure a workload with the same --cases, and --quick always or never, to put it together.",
        )


def _check_independent(one: Results, other: Results) -> None:
    """The same run twice would pass for repeats that agree."""
    if one.started == other.started or _measured(one) & _measured(other):
        raise InvalidOptions(
            f"the results of {one.started} and {other.started} are, or hold, the same run",
            "Give every run to --from once.",
        )


def _measured(document: Results) -> set[bytes]:
    """Every run with its times, which no other run has, however it was counted."""
    runs = (msgspec.structs.replace(run, repeat=0) for run in document.runs)
    return {msgspec.json.encode(each) for each in (*runs, *document.restarts, *document.two_up)}


def _cases(document: Results) -> tuple[int | None, bool]:
    return document.setting.cases, document.setting.quick


def _roles(document: Results) -> set[tuple[str, str]]:
    return {(model.role, model.sha256) for model in document.models}


def _once(items: Iterable[T], key: Callable[[T], Hashable] = lambda item: item) -> list[T]:
    """The first of each kind, in order."""
    found: dict[Hashable, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


def _left_out(documents: Sequence[Results]) -> list[str]:
    """The cases that none of the documents has measured."""
    measured = {f"{run.workload} / {run.case}" for d in documents for run in d.runs}
    return _once(case for d in documents for case in d.left_out if case not in measured)


def _runs(documents: Iterable[Results]) -> list[Run]:
    repeats: dict[str, int] = defaultdict(int)
    runs = []
    for document in documents:
        before = dict(repeats)
        for run in document.runs:
            repeat = run.repeat + before.get(run.workload, 0)
            repeats[run.workload] = max(repeats[run.workload], repeat + 1)
            runs.append(msgspec.structs.replace(run, repeat=repeat))
    return runs
