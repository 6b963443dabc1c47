"""The acceptance run as a whole, and its output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from assets.bench.acceptance.bench import AcceptanceBench
from assets.bench.acceptance.output import lines_of, page_of
from assets.bench.acceptance.results import AcceptanceResults, Restart, TwoUp
from assets.bench.acceptance.sweep import sweep_contestants
from localspec.bench.bench import Order
from localspec.bench.contestant import own_contestants
from localspec.bench.results import CONTROL, PLAIN, Overhead
from localspec.errors import InvalidOptions
from localspec.models.bundled import bundled_model
from localspec.protocol.engine_config import EngineConfig
from tests.bench import stand_in
from tests.bench.documents import acceptance, judged, run
from tests.hygiene.source import ROOT

SMALL = EngineConfig(n_ctx=1024, parallel=1, threads=1)


def silent(what: str, fraction: float) -> None:
    assert 0 <= fraction <= 1


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_LLAMA_SERVER", "/no/such/server")
    return tmp_path


def order(**changes: Any) -> Order:
    target, draft = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")
    return Order(target=target, draft=draft, config=SMALL, quick=True, runs=1)._replace(**changes)


def no_large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    overheads = "assets.bench.acceptance.bench.large_vocabulary_overheads"
    monkeypatch.setattr(overheads, lambda config, tell: [Overhead("large", 151_936, PLAIN, 9, 0.02)])


# The run.


@pytest.mark.parametrize(
    ("changes", "workloads"),
    [
        ({}, ("edit-short", "chat")),
        ({"workloads": ("two-up", "chat", "two-up")}, ("chat", "two-up")),
        ({"workloads": ("sweep",)}, ("sweep",)),
        (
            {"quick": False},
            ("edit-short", "edit-long", "fim", "chat", "story", "warm-restart", "two-up", "sweep"),
        ),
    ],
)
def test_which_workloads_are_measured(
    home: Path, changes: dict[str, Any], workloads: tuple[str, ...]
) -> None:
    bench = AcceptanceBench(order(**changes), silent)
    assert bench.results.setting.workloads == workloads
    swept = [c for c in bench.results.contestants if c.name == "memory k=4"]
    assert bool(swept) == ("sweep" in workloads)


def test_a_workload_that_nobody_knows(home: Path) -> None:
    with pytest.raises(InvalidOptions, match="did you mean 'story'"):
        AcceptanceBench(order(workloads=("two-up", "stroy")), silent)


@pytest.mark.slow
def test_special_workloads_are_measured_beside_the_ordinary_ones(home: Path) -> None:
    names = ("chat", "sweep", "two-up", "warm-restart")
    results = AcceptanceBench(order(workloads=names, contestants=("auto", "memory")), silent).run()
    assert isinstance(results, AcceptanceResults)
    assert {r.contestant for r in results.runs if r.workload == "chat"} == {PLAIN, CONTROL, "auto", "memory"}
    swept = {r.contestant for r in results.runs if r.workload == "sweep"}
    assert swept == {PLAIN, "memory k=2", "memory k=4", "memory k=6", "memory k=8"}
    assert {c.workload for c in results.ceilings} == {"chat"}
    assert [found.contestant for found in results.two_up] == [PLAIN, "auto"]
    assert [restart.memory for restart in results.restarts] == ["empty", "kept", "other"]
    assert results.left_out == [] and results.failures == {}
    assert len(results.goals) == 12
    assert not (home / "data").exists()


@pytest.mark.slow
def test_a_special_workload_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not quick has the overhead with a large vocabulary, too."""
    no_large_vocabulary(monkeypatch)
    results = AcceptanceBench(
        order(workloads=("two-up",), contestants=("auto",), quick=False, cases=1), silent
    ).run()
    assert isinstance(results, AcceptanceResults)
    assert results.runs == [] and results.has_something
    assert {found.completions for found in results.two_up} == {1}
    assert [overhead.vocabulary for overhead in results.overheads] == [151_936]


@pytest.mark.slow
def test_a_server_that_dies_leaves_its_goal_open(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{stand_in.__file__}" dies "$@"\n')
    program.chmod(0o755)
    no_large_vocabulary(monkeypatch)
    who = ("auto", "llama-server plain")
    asked = order(workloads=("edit-short",), contestants=who, quick=False, cases=1, llama_server=program)
    results = AcceptanceBench(asked, silent).run()
    assert isinstance(results, AcceptanceResults)
    (goal,) = (g for g in results.goals if g.name.startswith("edit-short"))
    assert goal.met or (goal.met is None and "llama-server plain did not finish" in goal.note)


@pytest.mark.slow
def test_the_command_prints_the_goals(home: Path) -> None:
    command = (sys.executable, "-m", "assets.bench.acceptance", "-m", "bundled", "--quick", "--runs", "1")
    page = home / "report.html"
    done = subprocess.run(
        (*command, "--workload", "chat", "--contestant", "auto", "--report", str(page)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for word in ("none (again)", "greedy text with speculation", "not measured in this run: edit-short"):
        assert word in done.stdout
    assert 'id="goals"' in page.read_text()


# Its output.


def full_document() -> AcceptanceResults:
    runs = [run(PLAIN), run(CONTROL), run("auto", decode_s=0.5)]
    runs += [run(PLAIN, workload="sweep"), run("memory k=4", workload="sweep", decode_s=0.8)]
    return judged(
        acceptance(
            runs,
            contestants=[*own_contestants([]), *sweep_contestants([])],
            two_up=[TwoUp("auto", 9, 0.2, 0.25, 0.01, 0.015, 1 / 3)],
            restarts=[Restart("empty", 0, 0.1, 0.0, 1.0), Restart("kept", 0, 0.5, 0.4, 0.7)],
        )
    )


@pytest.fixture(scope="module")
def html() -> str:
    return page_of(full_document())


def section(html: str, id: str) -> str:
    return html.partition(f'<section id="{id}">')[2].partition("</section>")[0]


def test_the_page_begins_with_the_goals(html: str) -> None:
    goals = section(html, "goals")
    assert "5 of the 5 goals that this run measured are met." in goals
    assert goals.count("<td>✓ met</td>") == 5 and "<td>open</td>" in goals
    assert html.index('id="goals"') < html.index('id="plot-speed"') < html.index('id="sweep"')


def test_the_sweep_is_a_row_for_each_proposer_and_a_column_for_each_length(html: str) -> None:
    row = "<td>memory</td><td>–</td><td>1.25x</td><td>–</td><td>–</td>"
    assert row in section(html, "sweep")
    assert "memory k=4" not in section(html, "figures") + html.partition("const drawn")[2]


def test_special_workloads_have_their_tables(html: str) -> None:
    assert "<td>kept</td><td>40%</td><td>50%</td>" in section(html, "restart")
    assert "<td>200 → 250 ms</td><td>1.25x</td>" in section(html, "two-up")
    empty = page_of(judged(acceptance([])))
    for id in ("sweep", "restart", "two-up"):
        assert "This run did not measure it." in section(empty, id)


def printed(results: AcceptanceResults) -> str:
    console = Console(width=400)
    with console.capture() as captured:
        for each in lines_of(results):
            console.print(each)
    return captured.get()


def test_goals_are_lines_of_the_terminal() -> None:
    text = printed(full_document())
    assert "✓ edit-short: auto against" not in text  # it has no ceiling
    assert "✓ worst request of 64 tokens or more, auto: 2.00x, wanted ≥ 0.98x\n" in text
    assert "not measured in this run: edit-short: auto against the best reference" in text
    assert "memory k=4" in text


def test_on_a_busy_machine_no_goal_counts() -> None:
    runs = [run(PLAIN), run(CONTROL, decode_s=0.5), run("auto", decode_s=2.0)]
    text = printed(judged(acceptance(runs)))
    assert "The machine was busy" in text
    assert "? worst request" in text and "✗" not in text


def test_a_document_survives_its_json() -> None:
    results = full_document()
    assert msgspec.json.decode(msgspec.json.encode(results), type=AcceptanceResults) == results
