"""The goals and the special workloads in the terminal and on the page."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec
from rich.console import RenderableType
from rich.text import Text

from assets.bench.acceptance.goals import NOT_MEASURED
from assets.bench.acceptance.results import AcceptanceResults
from assets.bench.acceptance.sweep import LENGTHS
from assets.bench.acceptance.workloads import SWEEP
from localspec.bench.figures import warning_of
from localspec.bench.report import Table, percent, report_of, times
from localspec.cli.bench import tables_of

MARKS = {True: ("✓ ", "green"), False: ("✗ ", "red"), None: ("· ", "")}
OUTCOMES = {True: "✓ met", False: "✗ missed", None: "open"}


def lines_of(results: AcceptanceResults) -> list[RenderableType]:
    """The benchmark's own tables, and a line for each goal."""
    return [*tables_of(results), _goal_lines(results)]


def _goal_lines(results: AcceptanceResults) -> Text:
    lines, is_busy = Text(), bool(warning_of(results))
    for goal in results.goals:
        if goal.note != NOT_MEASURED:
            # On a busy machine no goal counts as met or missed.
            lines.append(*(("? ", "") if is_busy else MARKS[goal.met]))
            lines.append(f"{goal.name}: {goal.figure}, wanted {goal.goal}")
            lines.append(f"; {goal.note}\n" if goal.note else "\n")
    missing = [goal.name for goal in results.goals if goal.note == NOT_MEASURED]
    if missing:
        lines.append(f"{NOT_MEASURED}: {'; '.join(missing)}\n")
    return lines


def page_of(results: AcceptanceResults) -> str:
    """The benchmark's page with the goals first, and tables of the special workloads at its end."""
    after = [_sweep_table(results), _restart_table(results), _two_up_table(results)]
    # The sweep is a table of its own.
    figures = [figure for figure in results.figures if figure.workload != SWEEP]
    return report_of(msgspec.structs.replace(results, figures=figures), [_goal_table(results)], after)


def _goal_table(results: AcceptanceResults) -> Table:
    met = sum(goal.met is True for goal in results.goals)
    judged = sum(goal.met is not None for goal in results.goals)
    rows = [
        (OUTCOMES[goal.met], goal.name, goal.goal, "; ".join(filter(None, (goal.figure, goal.note))))
        for goal in results.goals
    ]
    return Table(
        "goals",
        "Goals",
        f"{met} of the {judged} goals that this run measured are met.",
        ("", "goal", "wanted", "measured"),
        rows,
    )


def _sweep_table(results: AcceptanceResults) -> Table:
    """The speeds of the sweep, a row for each proposer."""
    found = {f.contestant: f.speed for f in results.figures if f.workload == SWEEP}
    names = dict.fromkeys(name.partition(" k=")[0] for name in found if " k=" in name)
    rows = [(name, *(times(found.get(f"{name} k={k}")) for k in LENGTHS)) for name in names]
    return Table(
        "sweep",
        "Fixed lengths",
        "Speed on the edit workloads with a fixed length of drafts.",
        ("proposer", *(f"k = {k}" for k in LENGTHS)),
        rows,
    )


def _restart_table(results: AcceptanceResults) -> Table:
    rows = []
    for state in dict.fromkeys(restart.memory for restart in results.restarts):
        mine = [restart for restart in results.restarts if restart.memory == state]
        first = statistics.median(restart.first_turn_share for restart in mine)
        whole = statistics.median(restart.share for restart in mine)
        speeds = (_speed_of(r.first_turn_s_per_token for r in mine), _speed_of(r.s_per_token for r in mine))
        rows.append((state, percent(first), percent(whole), *speeds))
    return Table(
        "restart",
        "After a restart",
        "Long edits with the n-gram memory alone, by its state after the restart: empty, filled by this "
        "model, or filled by the draft model.",
        (
            "memory",
            "from memory, first turns",
            "from memory, all turns",
            "tok/s, first turns",
            "tok/s, all turns",
        ),
        rows,
    )


def _speed_of(s_per_token: Iterable[float | None]) -> str:
    """The median as tokens per second; a dash where it was not measured."""
    known = [seconds for seconds in s_per_token if seconds]
    return f"{1 / statistics.median(known):.1f}" if known else "–"


def _two_up_table(results: AcceptanceResults) -> Table:
    rows = [
        (
            found.contestant,
            _from_to(found.completion_alone_s, found.completion_s),
            times(found.completion_s / found.completion_alone_s),
            _from_to(found.completion_alone_p95_s, found.completion_p95_s),
            times(found.chat_s_per_token / found.chat_alone_s_per_token),
            times(1.15 / (1 - found.share)),
        )
        for found in results.two_up
    ]
    return Table(
        "two-up",
        "Two at once",
        "A chat streams while a completion arrives every three times as long as one takes alone.",
        ("contestant", "completion, alone → beside a chat", "ratio", "p95", "the chat slows by", "at most"),
        rows,
    )


def _from_to(alone: float | None, beside: float | None) -> str:
    return f"{1000 * alone:.0f} → {1000 * beside:.0f} ms" if alone and beside else "–"
