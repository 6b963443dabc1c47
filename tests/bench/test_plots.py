"""The plots show the measured values."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.bench.contestant import own_contestants
from localspec.bench.figures import ceilings_for, figures_of, oracle_speed
from localspec.bench.plots import ENOUGH, PALETTE, Plot, plots_of
from localspec.bench.results import CONTROL, PLAIN, Ceiling, Curve, Figure, ProposeCost, Results
from tests.bench.documents import concluded, document, run


def plot(results: Results, id: str) -> Plot:
    (found,) = (each for each in plots_of(concluded(results)) if each.id == id)
    return found


def trace(results: Results, id: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in plot(results, id).data if each["name"] == name)
    return found


def repeated(contestant: str, seconds: tuple[float, ...], **fields: Any) -> list[Any]:
    return [run(contestant, repeat=i, decode_s=s, **fields) for i, s in enumerate(seconds)]


def test_whiskers_span_the_repeats() -> None:
    runs = repeated(PLAIN, (1.0, 1.0, 1.0)) + repeated("auto", (0.5, 0.8, 0.4))
    bar = trace(document(runs), "speed", "auto")
    assert (bar["x"], bar["y"]) == (["edit-short"], [2.0])
    assert bar["error_y"]["array"] == [pytest.approx(0.5)]
    assert bar["error_y"]["arrayminus"] == [pytest.approx(0.75)]


def test_whiskers_of_what_has_no_speed_are_nothing() -> None:
    results = document([run(PLAIN, tokens=1, decode_s=0.0), run("auto", tokens=1, decode_s=0.0)])
    bar = trace(results, "speed", "auto")
    assert (bar["y"], bar["error_y"]["array"], bar["error_y"]["arrayminus"]) == ([1.0], [0.0], [0.0])


def test_plain_decoding_is_a_line_and_its_noise_a_band() -> None:
    runs = repeated(PLAIN, (1.0, 1.0)) + repeated(CONTROL, (0.8, 1.25))
    shapes = plot(document(runs), "speed").layout["shapes"]
    assert [(shape["type"], shape["y0"], shape["y1"]) for shape in shapes] == [
        ("rect", pytest.approx(0.8), pytest.approx(1.25)),
        ("line", 1.0, 1.0),
    ]
    alone = plot(document([run(PLAIN), run("auto")]), "speed")
    assert [shape["type"] for shape in alone.layout["shapes"]] == ["line"]


def test_seconds_saved_are_of_one_pass_over_the_workload() -> None:
    """Twice as fast over 3 s of plain decoding: 1.5 s, however often it was repeated."""
    runs = []
    for case, seconds in (("a", 1.0), ("b", 2.0)):
        runs += repeated(PLAIN, (seconds,) * 3, case=case)
        runs += repeated("auto", (seconds / 2,) * 3, case=case)
        runs += repeated("memory", (2 * seconds,) * 3, case=case)
    results = document(runs)
    assert trace(results, "saved", "auto")["y"] == [pytest.approx(1.5)]
    assert trace(results, "saved", "memory")["y"] == [pytest.approx(-3.0)]


def test_a_wider_forward_is_shown_in_units_of_a_narrow_one() -> None:
    curves = [Curve("target", 512, {4: 0.030, 1: 0.010, 2: 0.015}), Curve("draft", 512, {1: 0.002})]
    found = plot(document([], curves=curves), "cost").data
    assert [line["name"] for line in found] == [
        "target (one token: 10.0 ms)",
        "draft (one token: 2.0 ms)",
    ]
    assert found[0]["x"] == [1, 2, 4] and found[0]["y"] == pytest.approx([1.0, 1.5, 3.0])
    assert found[0]["customdata"] == pytest.approx([10.0, 15.0, 30.0])
    assert [line["line"]["color"] for line in found] == list(PALETTE[:2])


def test_turns_are_counted_from_one_and_in_order() -> None:
    runs = [
        run("auto", workload="edit-long", turn=turn, drafted=10, accepted=right)
        for turn, right in ((2, 9), (0, 1), (1, 5))
    ]
    line = trace(document(runs), "turns", "auto")
    assert (line["x"], line["y"]) == ([1, 2, 3], [0.1, 0.5, 0.9])


def test_a_survival_that_rests_on_too_little_is_no_line() -> None:
    few = document([run("memory", survival={"memory": [[ENOUGH - 1, 5], [90, 90]], "draft": [[ENOUGH, 7]]})])
    lines = plot(few, "survival").data
    assert [(line["name"], line["x"], line["y"]) for line in lines] == [("draft", [1], [0.7])]


def test_what_proposing_costs_is_a_line_for_each_proposer() -> None:
    costs = [ProposeCost(name, n, n / 1000) for n in (1000, 8000) for name in ("memory", "prompt-lookup")]
    lines = plot(document([], propose_costs=costs), "propose").data
    assert [line["name"] for line in lines] == ["memory", "prompt-lookup"]
    assert all((line["x"], line["y"]) == ([1000, 8000], [1.0, 8.0]) for line in lines)


def test_there_are_colours_for_more_contestants_than_the_palette_has() -> None:
    names = [f"contestant {i}" for i in range(len(PALETTE) + 2)]
    results = document([run(PLAIN), *(run(name) for name in names)])
    colours = [bar["marker"]["color"] for bar in plot(results, "speed").data]
    assert colours == [*PALETTE, *PALETTE[:2]]


# The figures under them.


def figure(runs: list[Any], contestant: str = "auto", **fields: Any) -> Figure:
    (found,) = (f for f in figures_of(document(runs, **fields)) if f.contestant == contestant)
    return found


def test_cpu_time_is_per_token_of_those_who_measured_it() -> None:
    runs = [run(PLAIN, case=case) for case in "ab"]
    runs += [run("auto", case="a", tokens=10, cpu_s=2.0), run("auto", case="b", tokens=30, cpu_s=4.0)]
    assert figure(runs).cpu_s_per_token == pytest.approx(0.15)
    assert figure([run(PLAIN), run("auto")]).cpu_s_per_token is None


def test_time_saved_is_of_one_repeat() -> None:
    """A sum over requests, not over repeats."""
    runs = [*repeated(PLAIN, (1.0, 1.0)), *(run(PLAIN, case="b", repeat=i) for i in range(2))]
    runs += [run("auto", case=case, repeat=i, time_saved_s=0.5 + i) for case in "ab" for i in range(2)]
    assert figure(runs).time_saved_s == pytest.approx((0.5 + 0.5 + 1.5 + 1.5) / 2)
    assert figure([run(PLAIN), run("auto")]).time_saved_s is None


def test_the_first_token_comes_after_the_median_of_what_is_known() -> None:
    runs = [run(PLAIN, case=case) for case in "abcd"]
    runs += [run("auto", case=case, ttft_s=s) for case, s in zip("abcd", (0.1, 0.9, 0.2, None), strict=True)]
    assert figure(runs).ttft_s == 0.2


def test_requests_are_counted_once_however_often_they_were_asked() -> None:
    runs = [*repeated(PLAIN, (1.0, 1.0)), *repeated("auto", (1.0, 1.0)), run("auto", turn=1)]
    assert figure(runs).requests == 2


def test_a_repeat_that_plain_decoding_did_not_finish_is_not_compared() -> None:
    runs = [*repeated(PLAIN, (1.0,)), *repeated("auto", (0.5, 0.001))]
    assert figure(runs).repeats == [2.0]


def test_what_nobody_drafted_has_no_acceptance_and_an_oracle_of_no_time_no_speed() -> None:
    runs = [run(PLAIN), run("auto", drafted=0, accepted=0)]
    free = Ceiling("edit-short", "case", 0, None, 101, plain_s=1.0, router_s=0.0, truth_s=0.0)
    found = figure(runs, ceilings=[free])
    assert (found.acceptance, found.router_share, found.truth_share) == (None, None, None)


def test_oracles_are_of_the_same_workload_and_draft_model() -> None:
    def ceiling(workload: str, draft: str | None, seconds: float) -> Ceiling:
        return Ceiling(workload, "case", 0, draft, 101, plain_s=4.0, router_s=seconds, truth_s=1.0)

    ceilings = [ceiling("chat", "a", 1.0), ceiling("fim", "a", 2.0), ceiling("fim", "b", 4.0)]
    results = document([], ceilings=ceilings, contestants=own_contestants(["a", "b"]))
    speeds = [
        oracle_speed(ceilings_for(results, "fim", draft), lambda c: c.router_s)
        for draft in ("a", "b", None, "unknown")
    ]
    assert speeds == [2.0, 1.0, 2.0, 2.0]
    assert oracle_speed(ceilings_for(results, "story"), lambda c: c.router_s) is None
