"""The report: one HTML page with everything in it, readable without a network."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from localspec.bench.contestant import SWEEP_LENGTHS
from localspec.bench.figures import notices_of, warning_of
from localspec.bench.plots import Plot, plots_of
from localspec.bench.published import RESTART_PUBLISHED, SWEEP_PUBLISHED, TURNS_PUBLISHED
from localspec.bench.results import Figure, Results
from localspec.errors import INSTALL_BENCH, BackendUnavailable
from localspec.units import size


class Table(NamedTuple):
    """A table of text cells; the first column names the row."""

    id: str
    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def report_of(results: Results) -> str:
    """The page; raises :class:`BackendUnavailable` without plotly."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(files("localspec.bench").joinpath("page.html").read_text("utf-8"))
    plots = plots_of(results)
    return page.render(
        plotly=_plotly(),
        results=results,
        memory=size(results.machine.memory),
        peak=size(results.peak_memory),
        minutes=f"{results.duration_s / 60:.0f}",
        headline=_headline(results),
        warning=warning_of(results),
        notices=notices_of(results),
        marks={True: "met", False: "missed", None: "open"},
        plots=plots,
        drawn={plot.id: _drawing(plot) for plot in plots if plot.data},
        tables=[_figure_table(results), _sweep_table(results), *_special_tables(results)],
    )


def _plotly() -> str:
    """plotly.js; plotly's Python side is not needed."""
    try:
        return files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8")
    except ModuleNotFoundError as error:
        raise BackendUnavailable(f"plotly cannot be imported: {error}", INSTALL_BENCH) from None


def _drawing(plot: Plot) -> dict[str, Any]:
    return {"data": plot.data, "layout": plot.layout}


def _headline(results: Results) -> str:
    """What a reader in a hurry should know."""
    auto = [figure for figure in results.figures if figure.contestant == "auto"]
    met = sum(goal.met is True for goal in results.goals)
    judged = sum(goal.met is not None for goal in results.goals)
    goals = f"{met} of {judged} goals that this run could judge are met."
    if not auto:
        return goals
    best, worst = max(auto, key=lambda f: f.speed), min(auto, key=lambda f: f.speed)
    return (
        f"With auto, decoding runs between {worst.speed:.2f}x ({worst.workload}) and {best.speed:.2f}x "
        f"({best.workload}) of plain decoding. {goals}"
    )


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _figure_table(results: Results) -> Table:
    header = (
        *("workload", "contestant", "speed", "worst request", "best request", "accepted"),
        *("tokens per round", "of the router", "of the truth", "first token", "CPU per token"),
    )
    return Table(
        "figures",
        "Every figure",
        "Speeds are tok/s over plain decoding, medians over the repeats; worst and best are single requests "
        "of at least 64 tokens. The router oracle chooses the best draft on offer in hindsight; the truth "
        "is a proposer that knows the text.",
        header,
        [_figure_row(figure) for figure in results.figures if figure.workload != "sweep"],
    )


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.workload,
        figure.contestant,
        _times(figure.speed),
        _times(figure.low),
        _times(figure.high),
        _percent(figure.acceptance),
        "–" if figure.tokens_per_round is None else f"{figure.tokens_per_round:.2f}",
        _percent(figure.router_share),
        _percent(figure.truth_share),
        "–" if figure.ttft_s is None else f"{1000 * figure.ttft_s:.0f} ms",
        "–" if figure.cpu_s_per_token is None else f"{1000 * figure.cpu_s_per_token:.1f} ms",
    )


def _sweep_table(results: Results) -> Table:
    """Ours and the published figure in one cell."""
    found = {f.contestant: f.speed for f in results.figures if f.workload == "sweep"}
    rows = [
        (name, *(f"{_times(found.get(f'{name} k={k}'))} ({_times(by_k[k])})" for k in SWEEP_LENGTHS))
        for name, by_k in SWEEP_PUBLISHED.items()
    ]
    turns = "; ".join(f"{name}: {', '.join(map(_times, speeds))}" for name, speeds in TURNS_PUBLISHED.items())
    return Table(
        "sweep",
        "Fixed lengths, beside published figures",
        "Speed on the edit workloads with a fixed length, and in brackets what has been published for other "
        "machines and models (an 8B target on Apple silicon): compare the shapes, not the numbers. "
        f"Published by turn of a long edit: {turns}.",
        ("proposer", *(f"k = {k}" for k in SWEEP_LENGTHS)),
        rows if found else (),
    )


def _special_tables(results: Results) -> list[Table]:
    return [_restart_table(results), _two_up_table(results), _overhead_table(results)]


def _restart_table(results: Results) -> Table:
    rows = []
    for state in dict.fromkeys(restart.memory for restart in results.restarts):
        mine = [restart for restart in results.restarts if restart.memory == state]
        first = statistics.median(restart.first_turn_share for restart in mine)
        whole = statistics.median(restart.share for restart in mine)
        speeds = (_speed_of(r.first_turn_s_per_token for r in mine), _speed_of(r.s_per_token for r in mine))
        rows.append((state, _percent(first), _percent(whole), *speeds))
    return Table(
        "restart",
        "After a restart",
        "Long edits with memory alone, by what the restart left: nothing, what this model had learned, or "
        f"what the draft model had. Published for comparison: {RESTART_PUBLISHED}.",
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


def _two_up_table(results: Results) -> Table:
    rows = [
        (
            found.contestant,
            _from_to(found.completion_alone_s, found.completion_s),
            _times(found.completion_s / found.completion_alone_s),
            _from_to(found.completion_alone_p95_s, found.completion_p95_s),
            _times(found.chat_s_per_token / found.chat_alone_s_per_token),
            _times(1.15 / (1 - found.share)),
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


def _overhead_table(results: Results) -> Table:
    rows = [(o.model, str(o.vocabulary), o.contestant, f"{o.share:.1%}") for o in results.overheads]
    return Table(
        "overhead",
        "Our overhead",
        "What a round takes beside the target's forward, as a share of it; a draft model's forwards are not "
        "counted.",
        ("model", "vocabulary", "contestant", "overhead"),
        rows,
    )
