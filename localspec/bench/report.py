"""The report: one self-contained HTML page, readable without a network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from localspec.bench.figures import notices_of, warning_of
from localspec.bench.plots import Plot, plots_of
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


def report_of(results: Results, before: Sequence[Table] = (), after: Sequence[Table] = ()) -> str:
    """The page, with more tables before the plots and at the end.

    Raises :class:`BackendUnavailable` without plotly.
    """
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
        before=before,
        plots=plots,
        drawn={plot.id: _drawing(plot) for plot in plots if plot.data},
        after=[_figure_table(results), _overhead_table(results), *after],
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
    """The results of ``auto`` in a sentence."""
    auto = [figure for figure in results.figures if figure.contestant == "auto"]
    if not auto:
        return "auto was not measured."
    best, worst = max(auto, key=lambda f: f.speed), min(auto, key=lambda f: f.speed)
    return (
        f"With auto, decoding runs between {worst.speed:.2f}x ({worst.workload}) and {best.speed:.2f}x "
        f"({best.workload}) of plain decoding."
    )


def times(value: float | None) -> str:
    """A speed; a dash where it was not measured."""
    return "–" if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A share; a dash where it was not measured."""
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
        "of at least 64 tokens. The router oracle chooses the best of the offered drafts in hindsight; the "
        "truth oracle drafts the text itself.",
        header,
        [_figure_row(figure) for figure in results.figures],
    )


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.workload,
        figure.contestant,
        times(figure.speed),
        times(figure.low),
        times(figure.high),
        percent(figure.acceptance),
        "–" if figure.tokens_per_round is None else f"{figure.tokens_per_round:.2f}",
        percent(figure.router_share),
        percent(figure.truth_share),
        "–" if figure.ttft_s is None else f"{1000 * figure.ttft_s:.0f} ms",
        "–" if figure.cpu_s_per_token is None else f"{1000 * figure.cpu_s_per_token:.1f} ms",
    )


def _overhead_table(results: Results) -> Table:
    rows = [(o.model, str(o.vocabulary), o.contestant, f"{o.share:.1%}") for o in results.overheads]
    return Table(
        "overhead",
        "Our overhead",
        "The time of a round besides the target's forward, as a share of that; a draft model's forwards are "
        "not counted.",
        ("model", "vocabulary", "contestant", "overhead"),
        rows,
    )
