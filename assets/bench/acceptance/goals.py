"""The goals of localspec, computed from the results of a benchmark."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from assets.bench.acceptance.results import AcceptanceResults as Results
from assets.bench.acceptance.results import Goal, TwoUp
from localspec.bench.figures import LONG, request_speeds
from localspec.bench.results import CONTROL, PLAIN, Figure, Run

AUTO, MEMORY = "auto", "memory"
EDITS, PROSE = ("edit-short", "edit-long"), ("chat", "story")
OVER_REFERENCE, OF_ROUTER = 1.2, 0.85
NOISE_ROOM = 0.02
MOST_LATENCY, MOST_SLOWDOWN = 1.5, 1.15
MOST_OVERHEAD = 0.03
MOST_MICROSECONDS, FLAT = 100.0, 3.0
"""largest time per round, and largest ratio of the longest context's to that of the shortest, 1/32 as long"""
COLD_SHARE, WARM_SHARE, WARM_SPEED = 0.05, 0.25, 1.3
NOT_MEASURED = "not measured in this run"


def goals_of(results: Results) -> list[Goal]:
    """Every goal; ``met`` is None where figures are missing, and where a contestant of the goal failed.

    Needs ``results.figures``.
    """
    ours = [contestant.name for contestant in results.contestants if not contestant.reference]
    of_auto = [_edit(results, workload) for workload in EDITS]
    of_auto.append(_worst(results))
    of_auto += [_prose(results, workload) for workload in PROSE]
    of_auto += _two_up(results)
    exact = _exact(results)
    return [
        *_unless_failed(results, of_auto, [AUTO]),
        *_unless_failed(results, [_overhead(results)], ours),
        _propose(results),
        # A divergence counts even if another contestant failed.
        *_unless_failed(results, [exact], ours if exact.met else []),
        *_unless_failed(results, _restart(results), [MEMORY]),
    ]


def _unless_failed(results: Results, goals: Iterable[Goal], names: Iterable[str]) -> Iterator[Goal]:
    """The goals, with ``met`` None where one of the contestants ``names`` failed."""
    failed = ", ".join(name for name in names if name in results.failures)
    for goal in goals:
        yield msgspec.structs.replace(goal, met=None, note=f"{failed} failed") if failed else goal


def _judge(name: str, figure: str, goal: str, met: bool, note: str) -> Goal:
    return Goal(name, figure, goal, met, "" if met else note)


def _missing(name: str, goal: str) -> Goal:
    return Goal(name, "-", goal, None, NOT_MEASURED)


def _figure(results: Results, workload: str, contestant: str) -> Figure | None:
    found = (f for f in results.figures if (f.workload, f.contestant) == (workload, contestant))
    return next(found, None)


def _edit(results: Results, workload: str) -> Goal:
    name = f"{workload}: auto against the best reference and the router oracle"
    wanted = f"≥ min({OVER_REFERENCE} × reference, {OF_ROUTER} × router)"
    auto = _figure(results, workload, AUTO)
    if auto is None or not auto.router_share:
        return _missing(name, wanted)
    names = [contestant.name for contestant in results.contestants if contestant.reference]
    others = [f for f in results.figures if f.workload == workload and f.contestant in names]
    best = max(others, key=lambda f: f.speed, default=None)
    router = auto.speed / auto.router_share
    beside = f"{best.contestant} {best.speed:.2f}x" if best else "no reference ran"
    figure = f"{auto.speed:.2f}x; {beside}; router {router:.2f}x"
    unfinished = [n for n in names if n in results.failures]
    unfinished += [f.contestant for f in others if f.requests < auto.requests]
    if auto.router_share >= OF_ROUTER:
        return Goal(name, figure, wanted, True)
    if best is None or unfinished:
        why = f"{', '.join(dict.fromkeys(unfinished))} did not finish" if unfinished else "no reference ran"
        return Goal(name, figure, wanted, None, f"{auto.router_share:.0%} of the router, {why}")
    bar = min(OVER_REFERENCE * best.speed, OF_ROUTER * router)
    return _judge(name, figure, wanted, auto.speed >= bar, f"{auto.speed:.2f}x is under {bar:.2f}x")


def _runs(results: Results, contestant: str) -> list[Run]:
    return [run for run in results.runs if run.contestant == contestant]


def _worst(results: Results) -> Goal:
    name = f"worst request of {LONG} tokens or more, auto"
    plain = _runs(results, PLAIN)
    ours = request_speeds(_runs(results, AUTO), plain)
    control = request_speeds(_runs(results, CONTROL), plain)
    if not ours or not control:
        return _missing(name, f"≥ worst of plain against plain - {NOISE_ROOM}")
    worst = min(ours, key=lambda request: ours[request])
    bar = min(control.values()) - NOISE_ROOM
    note = f"{' / '.join(map(str, worst))} ran at {ours[worst]:.2f}x"
    return _judge(name, f"{ours[worst]:.2f}x", f"≥ {bar:.2f}x", ours[worst] >= bar, note)


def _prose(results: Results, workload: str) -> Goal:
    name = f"{workload}: mean of auto against plain"
    auto = _figure(results, workload, AUTO)
    if auto is None:
        return _missing(name, "≥ 1.00x")
    control = _figure(results, workload, CONTROL)
    beside = f"; plain against plain was {control.speed:.3f}x" if control else ""
    note = f"speculation lost {1 - auto.speed:.1%}{beside}"
    return _judge(name, f"{auto.speed:.3f}x", "≥ 1.00x", auto.speed >= 1.0, note)


def _two_up(results: Results) -> Iterator[Goal]:
    names = "two-up: completions against alone, p50", "two-up: how much the chat slows"
    found = next((t for t in results.two_up if t.contestant == AUTO), None)
    if found is None or not (found.completion_alone_s and found.chat_alone_s_per_token):
        yield from (_missing(name, goal) for name, goal in zip(names, ("≤ 1.5x", "≤ 1.72x"), strict=True))
        return
    yield _at_most(names[0], found.completion_s / found.completion_alone_s, MOST_LATENCY)
    yield _at_most(names[1], _slowdown(found), MOST_SLOWDOWN / (1 - found.share))


def _slowdown(found: TwoUp) -> float:
    return found.chat_s_per_token / found.chat_alone_s_per_token


def _at_most(name: str, ratio: float, bar: float) -> Goal:
    return _judge(name, f"{ratio:.2f}x", f"≤ {bar:.2f}x", ratio <= bar, f"{ratio:.2f}x is over {bar:.2f}x")


def _overhead(results: Results) -> Goal:
    name, wanted = "our overhead per round", f"≤ {MOST_OVERHEAD:.0%}"
    worst = max(results.overheads, key=lambda overhead: overhead.share, default=None)
    if worst is None:
        return _missing(name, wanted)
    by_size = {o.vocabulary: o for o in sorted(results.overheads, key=lambda overhead: overhead.share)}
    figure = ", ".join(f"{o.share:.1%} ({o.contestant}, {size} tokens)" for size, o in by_size.items())
    note = f"{worst.contestant} on {worst.model} takes {worst.share:.1%} beside the forward"
    return _judge(name, figure, wanted, worst.share <= MOST_OVERHEAD, note)


def _propose(results: Results) -> Goal:
    name, wanted = "propose + observe by context", f"≤ {MOST_MICROSECONDS:.0f} µs, flat"
    by_proposer: dict[str, dict[int, float]] = {}
    for cost in results.propose_costs:
        by_proposer.setdefault(cost.proposer, {})[cost.context] = cost.microseconds
    if not by_proposer:
        return _missing(name, wanted)
    figure = "; ".join(f"{p} {_microseconds(costs)}" for p, costs in by_proposer.items())
    slow = [p for p, costs in by_proposer.items() if max(costs.values()) > MOST_MICROSECONDS]
    steep = [p for p, costs in by_proposer.items() if costs[max(costs)] > FLAT * costs[min(costs)]]
    note = f"too slow: {', '.join(slow) or 'none'}; grows with the context: {', '.join(steep) or 'none'}"
    return _judge(name, figure, wanted, not slow and not steep, note)


def _microseconds(costs: dict[int, float]) -> str:
    return " / ".join(f"{costs[context]:.0f}" for context in sorted(costs)) + " µs"


def _exact(results: Results) -> Goal:
    name, wanted = "greedy text with speculation = without", "0 divergences"
    ours = {contestant.name for contestant in results.contestants if not contestant.reference}
    figures = [f for f in results.figures if f.contestant in ours and f.contestant != PLAIN]
    if not (figures or results.restarts or results.two_up):
        return _missing(name, wanted)
    wrong = Counter({f"{f.contestant} on {f.workload}": f.diverged for f in figures})
    for restart in results.restarts:
        wrong[f"warm-restart, {restart.memory} memory"] += restart.diverged
    for two_up in results.two_up:
        wrong[f"two-up, {two_up.contestant}"] += two_up.diverged
    cases = len({run.request for run in results.runs if run.exact})
    figure = f"{wrong.total()} in {cases} requests of each contestant"
    note = "diverged: " + ", ".join(where for where, count in wrong.items() if count)
    return _judge(name, figure, wanted, not any(wrong.values()), note)


def _restart(results: Results) -> Iterator[Goal]:
    names = (
        f"warm-restart: first turns from an empty memory (≤ {COLD_SHARE:.0%}) and a kept one",
        "warm-restart: speed of first turns with the memory kept against emptied",
    )
    wanted = f"≥ {WARM_SHARE:.0%}", f"≥ {WARM_SPEED}x"
    shares, seconds, all_turns = (
        _restart_medians(results, of) for of in ("first_turn_share", "first_turn_s_per_token", "s_per_token")
    )
    first, whole = (_ratio(times) for times in (seconds, all_turns))
    if whole is None:
        yield from (_missing(name, goal) for name, goal in zip(names, wanted, strict=True))
        return
    cold, warm = shares["empty"], shares["kept"]
    met = cold <= COLD_SHARE and warm >= WARM_SHARE
    other = f"; filled by the draft model {shares['other']:.0%}" if "other" in shares else ""
    note = f"{warm:.0%} of the tokens came from the kept memory, {cold:.0%} from an empty one"
    yield _judge(names[0], f"{cold:.0%} → {warm:.0%}{other}", wanted[0], met, note)
    if first is None:
        yield _missing(names[1], wanted[1])
        return
    note = f"{first:.2f}x is under {WARM_SPEED}x"
    yield _judge(
        names[1], f"{first:.2f}x ({whole:.2f}x over all turns)", wanted[1], first >= WARM_SPEED, note
    )


def _ratio(seconds: Mapping[str, float]) -> float | None:
    """The speed with a kept memory over that with an empty one; None where it was not timed."""
    return seconds["empty"] / seconds["kept"] if all(seconds.get(s) for s in ("kept", "empty")) else None


def _restart_medians(results: Results, of: str) -> dict[str, float]:
    """The median of a field by state of the memory; states without it are left out."""
    found: dict[str, list[float]] = {}
    for restart in results.restarts:
        if getattr(restart, of) is not None:
            found.setdefault(restart.memory, []).append(getattr(restart, of))
    return {state: statistics.median(values) for state, values in found.items()}
