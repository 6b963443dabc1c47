"""The report's plots as data for plotly.js, without plotly itself."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from localspec.bench.figures import of_full_repeats
from localspec.bench.results import CONTROL, PLAIN, Figure, Results, Run

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#7f7f7f")
"""colours that colour-blind readers can distinguish (Okabe and Ito, 2008), on light and dark"""
ENOUGH = 10
"""drafts below which a survival is not shown"""


class Plot(NamedTuple):
    """One plot with its texts; ``empty`` is the text in place of a plot without data."""

    id: str
    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = {}
    empty: str = "This run did not measure it."


def plots_of(results: Results) -> list[Plot]:
    """All plots, those without data too."""
    colours = _Colours()
    return [
        _speed(results, colours),
        _survival(results, colours),
        _cost(results),
        _by_turn(results, colours),
        _saved(results, colours),
        _propose(results, colours),
    ]


class _Colours:
    """Colours by name, the same in every plot."""

    def __init__(self) -> None:
        self._colours = itertools.cycle(PALETTE)
        self._by_name: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._by_name:
            self._by_name[name] = next(self._colours)
        return self._by_name[name]


def _figures(results: Results) -> list[Figure]:
    """The figures without plain decoding itself."""
    return [f for f in results.figures if f.contestant not in (PLAIN, CONTROL)]


def _names(figures: Iterable[Figure]) -> list[str]:
    return list(dict.fromkeys(figure.contestant for figure in figures))


def _speed(results: Results, colours: _Colours) -> Plot:
    figures = _figures(results)
    bars = []
    for name in _names(figures):
        mine = [figure for figure in figures if figure.contestant == name]
        bars.append(
            {
                "type": "bar",
                "name": name,
                "x": [figure.workload for figure in mine],
                "y": [figure.speed for figure in mine],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [max(f.repeats, default=f.speed) - f.speed for f in mine],
                    "arrayminus": [f.speed - min(f.repeats, default=f.speed) for f in mine],
                    "thickness": 1,
                    "width": 2,
                },
                "marker": {"color": colours[name]},
                "hovertemplate": f"{name}<br>%{{x}}: %{{y:.2f}}x<extra></extra>",
            }
        )
    noise = [s for f in results.figures if f.contestant == CONTROL for s in f.repeats]
    band = [_band(min(noise), max(noise))] if noise else []
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "tok/s over plain"}, "rangemode": "tozero"},
        "shapes": [*band, _line_at(1.0)],
    }
    return Plot(
        "speed",
        "Speed by workload",
        "Decoding speed as a multiple of plain decoding in the same run. Whiskers span the repeats. The "
        "grey band is plain decoding against itself: inside it, a difference means nothing.",
        bars,
        layout,
    )


def _band(low: float, high: float) -> dict[str, Any]:
    shape = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high, "line": {"width": 0}}
    return shape | {"fillcolor": "rgba(128,128,128,0.35)", "layer": "below"}


def _line_at(height: float) -> dict[str, Any]:
    line = {"color": "rgba(128,128,128,0.8)", "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": height, "y1": height, "line": line}


def _survival(results: Results, colours: _Colours) -> Plot:
    """The survival curves: products of the acceptance of each position."""
    lines = []
    for proposer, counts in survival_counts(results.runs).items():
        judged = list(itertools.takewhile(lambda count: count[0] >= ENOUGH, counts))
        alive = list(itertools.accumulate((right / n for n, right in judged), lambda a, b: a * b))
        if alive:
            line = {
                "type": "scatter",
                "mode": "lines+markers",
                "name": proposer,
                "x": list(range(1, len(alive) + 1)),
                "y": alive,
                "line": {"color": colours[proposer], "width": 2},
                "hovertemplate": f"{proposer}<br>position %{{x}}: %{{y:.0%}}<extra></extra>",
            }
            lines.append(line)
    layout = {
        "xaxis": {"title": {"text": "position in the draft"}, "dtick": 1},
        "yaxis": {"title": {"text": "accepted up to here"}, "tickformat": ".0%", "range": [0, 1.02]},
    }
    return Plot(
        "survival",
        "Survival of drafts",
        "The probability that a draft is accepted up to a position. Where the curve falls faster than the "
        "cost curve rises, longer drafts lose time.",
        lines,
        layout,
    )


def survival_counts(runs: Iterable[Run]) -> dict[str, list[list[int]]]:
    """By proposer and position, ``[offered, accepted]`` over all runs."""
    total: dict[str, list[list[int]]] = {}
    for run in runs:
        for proposer, counts in run.survival.items():
            sums = total.setdefault(proposer, [])
            sums += [[0, 0] for _ in range(len(counts) - len(sums))]
            for position, (offered, accepted) in enumerate(counts):
                sums[position][0] += offered
                sums[position][1] += accepted
    return total


def _cost(results: Results) -> Plot:
    lines: list[dict[str, Any]] = []
    for number, curve in enumerate(results.curves):
        widths = sorted(curve.seconds)
        one = curve.seconds[widths[0]]
        line = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"{curve.role} (one token: {1000 * one:.1f} ms)",
            "x": widths,
            "y": [curve.seconds[width] / one for width in widths],
            "customdata": [1000 * curve.seconds[width] for width in widths],
            "line": {"color": PALETTE[number % len(PALETTE)], "width": 2},
            "hovertemplate": "%{x} tokens: %{y:.2f} times one, %{customdata:.1f} ms<extra></extra>",
        }
        lines.append(line)
    layout = {
        "xaxis": {"title": {"text": "tokens in one forward"}},
        "yaxis": {"title": {"text": "time, one token = 1"}, "rangemode": "tozero"},
    }
    return Plot(
        "cost",
        "Cost of a wider forward",
        "Verifying k draft tokens takes a forward k + 1 wide. Flat: speculation is nearly free. Steep: only "
        "drafts with a high acceptance save time.",
        lines,
        layout,
    )


def _by_turn(results: Results, colours: _Colours) -> Plot:
    rates = acceptance_by_turn(results.runs)
    lines: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": contestant,
            "x": [turn + 1 for turn in sorted(by_turn)],
            "y": [by_turn[turn] for turn in sorted(by_turn)],
            "line": {"color": colours[contestant], "width": 2},
            "hovertemplate": f"{contestant}<br>turn %{{x}}: %{{y:.0%}}<extra></extra>",
        }
        for contestant, by_turn in rates.items()
    ]
    layout = {
        "xaxis": {"title": {"text": "turn"}, "dtick": 1},
        "yaxis": {"title": {"text": "accepted of drafted"}, "tickformat": ".0%", "range": [0, 1.02]},
    }
    return Plot(
        "turns",
        "Acceptance by turn",
        "Long edits by turn: text of earlier turns is repeated. The n-gram memory also has text that is no "
        "longer in the prompt.",
        lines,
        layout,
    )


def acceptance_by_turn(runs: Sequence[Run], workload: str = "edit-long") -> dict[str, dict[int, float]]:
    """Accepted of drafted tokens by contestant and turn, where anything was drafted."""
    counts: dict[str, dict[int, list[int]]] = {}
    for run in runs:
        if run.workload == workload and run.drafted:
            count = counts.setdefault(run.contestant, {}).setdefault(run.turn, [0, 0])
            count[0] += run.drafted
            count[1] += run.accepted or 0
    return {
        name: {turn: right / drafted for turn, (drafted, right) in by_turn.items()}
        for name, by_turn in counts.items()
    }


def _saved(results: Results, colours: _Colours) -> Plot:
    figures = _figures(results)
    bars = []
    for name in _names(figures):
        mine = [f for f in figures if f.contestant == name]
        saved = {
            f.workload: seconds for f in mine if (seconds := _seconds_saved(results.runs, f)) is not None
        }
        bar = {
            "type": "bar",
            "name": name,
            "x": list(saved),
            "y": list(saved.values()),
            "marker": {"color": colours[name]},
            "hovertemplate": f"{name}<br>%{{x}}: %{{y:.1f}} s<extra></extra>",
        }
        bars += [bar] if saved else []
    return Plot(
        "saved",
        "Time saved",
        "Seconds of decoding that each contestant saved over one pass of a workload, against plain decoding "
        "of the same repeat. Below zero, speculation cost time.",
        bars,
        {"barmode": "group", "yaxis": {"title": {"text": "seconds"}}, "shapes": [_line_at(0.0)]},
    )


def _seconds_saved(runs: Sequence[Run], figure: Figure) -> float | None:
    """The median over the repeats, at the contestant's tokens."""
    mine = [r for r in runs if (r.workload, r.contestant) == (figure.workload, figure.contestant)]
    spent: dict[int, float] = {}
    for run in of_full_repeats(mine):
        spent[run.repeat] = spent.get(run.repeat, 0.0) + run.decode_s
    if not spent:
        return None
    return statistics.median(spent.values()) * (figure.speed - 1)


def _propose(results: Results, colours: _Colours) -> Plot:
    lines: list[dict[str, Any]] = []
    for proposer in dict.fromkeys(cost.proposer for cost in results.propose_costs):
        mine = [cost for cost in results.propose_costs if cost.proposer == proposer]
        line = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": proposer,
            "x": [cost.context for cost in mine],
            "y": [cost.microseconds for cost in mine],
            "line": {"color": colours[proposer], "width": 2},
            "hovertemplate": f"{proposer}<br>%{{x}} tokens: %{{y:.0f}} µs<extra></extra>",
        }
        lines.append(line)
    layout = {
        "xaxis": {"title": {"text": "tokens of context"}, "type": "log"},
        "yaxis": {"title": {"text": "µs per round"}, "rangemode": "tozero"},
    }
    return Plot(
        "propose",
        "Cost of proposing",
        "Proposing and learning from the outcome, without any model. A proposer that searched the text "
        "anew in every round would rise with the context.",
        lines,
        layout,
    )
