"""The page has everything in it, and every plot."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from localspec.bench.contestant import own_contestants
from localspec.bench.plots import PALETTE, acceptance_by_turn, plots_of, survival_counts
from localspec.bench.report import report_of
from localspec.bench.results import (
    CONTROL,
    PLAIN,
    Ceiling,
    Curve,
    Machine,
    Overhead,
    ProposeCost,
    Results,
)
from tests.bench.documents import concluded, document, run

PLOTS = {"speed", "survival", "cost", "turns", "saved", "propose"}
TABLES = {"figures", "overhead"}
FETCHING = ("src", "href", "srcset", "data", "action", "poster")


def full_document() -> Results:
    """Something of everything."""
    runs = []
    for workload in ("edit-short", "edit-long"):
        for contestant, speed in ((PLAIN, 1.0), (CONTROL, 1.01), ("auto", 1.6), ("memory", 1.3)):
            for turn in (0, 1):
                survival = {"memory": [[40, 30], [30, 12], [5, 5]]} if contestant == "memory" else {}
                found = run(
                    contestant,
                    workload=workload,
                    turn=turn,
                    decode_s=1 / speed,
                    drafted=None if speed < 1.1 else 50,
                    accepted=20 * (turn + 1),
                    survival=survival,
                )
                runs.append(found)
    return concluded(
        document(
            runs,
            contestants=own_contestants([]),
            ceilings=[Ceiling("edit-short", "case", 0, None, 101, 2.0, 1.0, 0.5)],
            curves=[Curve("target", 512, {1: 0.012, 2: 0.02, 5: 0.03})],
            propose_costs=[ProposeCost("memory", n, 9.0) for n in (1000, 8000, 32000)],
            overheads=[Overhead("stdlib-6m", 8192, "auto", 10, 0.02)],
        )
    )


class Page(HTMLParser):
    """The resources that a browser would fetch for a page, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.styles: list[str] = []
        self.text: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.fetched += [value or "" for name, value in attrs if name in FETCHING]
        self.fetched += [tag] if tag in ("link", "iframe", "img", "base") else []
        self.ids |= {value or "" for name, value in attrs if name == "id"}
        self.styles += [value or "" for name, value in attrs if name == "style"]

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "style":
            self.styles.append(data)
        elif self._in != "script":
            self.text.append(data)


@pytest.fixture(scope="module")
def html() -> str:
    return report_of(full_document())


def test_nothing_is_fetched_from_anywhere(html: str) -> None:
    page = Page(html)
    assert page.fetched == []
    assert not [style for style in page.styles if re.search(r"url\(|@import", style)]
    assert "http" not in " ".join(page.text)


def test_plotly_is_inside(html: str) -> None:
    assert "Plotly.react" in html
    assert len(html) > 1_000_000


def test_every_plot_and_table_has_its_place(html: str) -> None:
    page = Page(html)
    assert {f"plot-{plot}" for plot in PLOTS} <= page.ids
    assert page.ids >= TABLES
    assert "This run did not measure it." not in " ".join(page.text)


def test_every_plot_has_data_and_a_caption() -> None:
    plots = plots_of(full_document())
    assert {plot.id for plot in plots} == PLOTS
    for plot in plots:
        assert plot.data, plot.id
        assert plot.caption.endswith(".")


def test_a_page_without_any_run_says_so() -> None:
    page = Page(report_of(concluded(document([]))))
    assert {f"plot-{plot}" for plot in PLOTS} <= page.ids
    assert " ".join(page.text).count("This run did not measure it.") >= len(PLOTS)


def test_light_and_dark(html: str) -> None:
    assert html.count("prefers-color-scheme: dark") == 2


def test_names_from_outside_are_text() -> None:
    results = full_document()
    results.machine = Machine("<script>alert(1)</script>", 2, 1, "x", 0, {})
    page = report_of(results)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_an_interrupted_run_says_so() -> None:
    results = full_document()
    results.stopped = "interrupted"
    results.failures = {"llama-server plain": "it does not answer"}
    text = " ".join(Page(report_of(results)).text)
    assert "This run was interrupted" in text
    assert "llama-server plain failed" in text


def test_memory_is_told_of_whose_it_is(html: str) -> None:
    """All contestants run in one process: there is no peak of each."""
    assert "Peak memory of the benchmark's own process" in " ".join(Page(html).text)


def test_the_noise_band_is_plain_against_plain() -> None:
    (speed,) = (plot for plot in plots_of(full_document()) if plot.id == "speed")
    band = speed.layout["shapes"][0]
    assert (band["y0"], band["y1"]) == (pytest.approx(1.01), pytest.approx(1.01))
    assert {bar["name"] for bar in speed.data} == {"auto", "memory"}


def test_a_survival_is_the_product_of_its_positions_and_ends_where_little_is_known() -> None:
    results = document([run("memory", survival={"memory": [[40, 30], [30, 15], [5, 5]]})])
    (survival,) = (plot for plot in plots_of(results) if plot.id == "survival")
    assert survival.data[0]["y"] == [0.75, 0.375]


def test_survivals_are_summed_over_runs() -> None:
    runs = [run(survival={"memory": [[4, 3]]}), run(survival={"memory": [[1, 1], [1, 0]]})]
    assert survival_counts(runs) == {"memory": [[5, 4], [1, 0]]}


def test_acceptance_by_turn_is_of_long_edits() -> None:
    runs = [
        run("auto", workload="edit-long", turn=1, drafted=10, accepted=5),
        run("auto", workload="edit-long", turn=1, drafted=30, accepted=25),
        run("auto", workload="chat", turn=1, drafted=10, accepted=0),
        run(PLAIN, workload="edit-long", turn=1, drafted=0, accepted=0),
    ]
    assert acceptance_by_turn(runs) == {"auto": {1: 0.75}}


def test_a_contestant_has_one_colour_everywhere() -> None:
    colours: dict[str, set[str]] = {}
    for plot in plots_of(full_document()):
        if plot.id != "cost":
            for trace in plot.data:
                colour = trace.get("marker", trace.get("line", {}))["color"]
                colours.setdefault(trace["name"], set()).add(colour)
    assert all(len(found) == 1 for found in colours.values())
    assert len(set(PALETTE)) == len(PALETTE)
