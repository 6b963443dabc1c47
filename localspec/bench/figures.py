"""The summary of raw runs: one figure per workload and contestant."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from localspec.bench.results import CONTROL, PLAIN, Ceiling, Figure, Results, Run

K = TypeVar("K")

LONG = 64
"""tokens of a request whose speed counts by itself; shorter ones are too noisy"""
QUIET = 0.05
"""largest difference between plain decoding and its control, as a share, on an idle machine"""


def figures_of(results: Results) -> list[Figure]:
    """Every contestant on every workload, against plain decoding of the same requests and repeats."""
    cells: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in results.runs:
        cells[run.workload, run.contestant].append(run)
    labels = {contestant.name: contestant.draft for contestant in results.contestants}
    found = []
    for (workload, contestant), runs in cells.items():
        plain = cells.get((workload, PLAIN), [])
        if paired(runs, plain):
            ceilings = ceilings_for(results, workload, labels.get(contestant))
            found.append(_figure(contestant, runs, plain, ceilings))
    return found


def noise_of(results: Results) -> float | None:
    """Return the noise of the measurement; None if it was not measured.

    The control is plain decoding, measured a second time. The noise is the largest difference of its speed
    from that of plain decoding over all workloads, as a share of the latter.
    """
    found = (abs(f.speed - 1) for f in results.figures if f.contestant == CONTROL)
    return max(found, default=None)


def warning_of(results: Results) -> str:
    """A warning for a run on a machine with other load; empty for an idle one."""
    noise = noise_of(results)
    if noise is None or noise <= QUIET:
        return ""
    return (
        f"The machine was busy: plain decoding differed from itself by {noise:.0%}; "
        "these figures are not reliable."
    )


def notices_of(results: Results) -> list[str]:
    """A sentence for each missing part of the results, with the reason."""
    found = []
    if results.stopped:
        found.append(f"This run was {results.stopped}; the missing figures were not measured.")
    for name, why in results.failures.items():
        found.append(f"{name} failed and was not measured any further: {why}")
    if results.left_out:
        found.append(f"There was no time for {', '.join(results.left_out)}.")
    return found


def ceilings_for(results: Results, workload: str, draft: str | None = None) -> list[Ceiling]:
    """The oracles that have the draft model labelled ``draft``; None: the first one, or none at all."""
    mine = [ceiling for ceiling in results.ceilings if ceiling.workload == workload]
    labels = dict.fromkeys(ceiling.draft for ceiling in mine)
    label = draft if draft in labels else next(iter(labels), None)
    return [ceiling for ceiling in mine if ceiling.draft == label]


def _figure(contestant: str, runs: list[Run], plain: list[Run], ceilings: list[Ceiling]) -> Figure:
    """The figure of whole repeats; those of single requests use all their repeats."""
    long, diverged = request_speeds(runs, plain), _diverged(runs, plain)
    together, runs = of_full_repeats(paired(runs, plain)), of_full_repeats(runs)
    repeats = _speeds(together, paired(plain, together), lambda run: run.repeat)
    speed = statistics.median(repeats.values()) if repeats else 1.0
    drafted = sum(run.drafted or 0 for run in runs)
    tokens = sum(run.completion_tokens for run in runs)
    cpu = [run.cpu_s for run in runs if run.cpu_s is not None]
    saved = [run.time_saved_s for run in runs if run.time_saved_s is not None]
    return Figure(
        workload=runs[0].workload,
        contestant=contestant,
        requests=len({run.request for run in runs}),
        speed=speed,
        low=min(long.values(), default=None),
        high=max(long.values(), default=None),
        repeats=list(repeats.values()),
        acceptance=sum(run.accepted or 0 for run in runs) / drafted if drafted else None,
        tokens_per_round=_tokens_per_round(runs),
        router_share=_share(together, repeats, ceilings, lambda c: c.router_s),
        truth_share=_share(together, repeats, ceilings, lambda c: c.truth_s),
        ttft_s=_median(run.ttft_s for run in runs),
        cpu_s_per_token=sum(cpu) / tokens if cpu and tokens else None,
        time_saved_s=sum(saved) / len({run.repeat for run in runs}) if saved else None,
        diverged=diverged,
    )


def paired(runs: Iterable[Run], others: Iterable[Run]) -> list[Run]:
    """The runs whose request is among ``others`` in the same repeat: a contestant that failed or was
    interrupted has fewer.
    """
    requests = {(run.request, run.repeat) for run in others}
    return [run for run in runs if (run.request, run.repeat) in requests]


def of_full_repeats(runs: Sequence[Run]) -> list[Run]:
    """The runs of repeats with every request of one contestant on one workload; all, if there is none.

    An interrupted repeat has no common median with a complete one.
    """
    by_repeat: dict[int, set[tuple[str, str, int]]] = defaultdict(set)
    for run in runs:
        by_repeat[run.repeat].add(run.request)
    whole = {run.request for run in runs}
    full = {repeat for repeat, requests in by_repeat.items() if requests == whole}
    return [run for run in runs if run.repeat in full or not full]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _tokens_per_round(runs: Sequence[Run]) -> float | None:
    known = [(run.tokens_per_round, run.rounds) for run in runs if run.tokens_per_round and run.rounds]
    rounds = sum(n for _, n in known)
    return sum(emitted * n for emitted, n in known) / rounds if rounds else None


def _diverged(runs: Sequence[Run], plain: Sequence[Run]) -> int:
    """The number of exact requests with another text than plain decoding's first one."""
    texts = {run.request: run.text_hash for run in reversed(plain)}
    return len({r.request for r in runs if r.exact and texts.get(r.request, r.text_hash) != r.text_hash})


def _speeds(runs: Iterable[Run], plain: Iterable[Run], key: Callable[[Run], K]) -> dict[K, float]:
    """tok/s over plain's, of all runs with the same key together."""
    ours, theirs = _rates(runs, key), _rates(plain, key)
    return {k: rate / theirs[k] for k, rate in ours.items() if k in theirs}


def _rates(runs: Iterable[Run], key: Callable[[Run], K]) -> dict[K, float]:
    tokens: dict[K, int] = defaultdict(int)
    seconds: dict[K, float] = defaultdict(float)
    for run in runs:
        if run.decode_s > 0:
            tokens[key(run)] += run.completion_tokens - 1
            seconds[key(run)] += run.decode_s
    return {k: tokens[k] / seconds[k] for k in tokens}


def request_speeds(
    runs: Sequence[Run], plain: Sequence[Run], *, at_least: int = LONG
) -> dict[tuple[str, str, int], float]:
    """tok/s over plain's per request of ``at_least`` tokens: the median over the repeats."""
    long = [run for run in runs if run.completion_tokens >= at_least]
    single = _speeds(long, plain, lambda run: (run.request, run.repeat))
    speeds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for (request, _), speed in single.items():
        speeds[request].append(speed)
    return {request: statistics.median(found) for request, found in speeds.items()}


def _share(
    runs: Sequence[Run],
    repeats: Mapping[int, float],
    ceilings: Sequence[Ceiling],
    seconds: Callable[[Ceiling], float],
) -> float | None:
    """The speeds of ``repeats`` as shares of an oracle's on each repeat's own requests; their median."""
    shares = []
    for repeat, speed in repeats.items():
        requests = {run.request for run in runs if run.repeat == repeat}
        best = oracle_speed([ceiling for ceiling in ceilings if ceiling.request in requests], seconds)
        shares += [speed / best] if best else []
    return statistics.median(shares) if shares else None


def oracle_speed(ceilings: Sequence[Ceiling], seconds: Callable[[Ceiling], float]) -> float | None:
    """An oracle's speed against plain decoding, over all requests; None: not measured."""
    needed = sum(seconds(ceiling) for ceiling in ceilings)
    return sum(ceiling.plain_s for ceiling in ceilings) / needed if needed else None
