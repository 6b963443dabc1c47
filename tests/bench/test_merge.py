"""A benchmark that was measured in parts."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest

from localspec.bench.merge import merged
from localspec.bench.results import (
    CONTROL,
    PLAIN,
    Curve,
    Machine,
    Model,
    Overhead,
    Restart,
    Results,
    Setting,
    TwoUp,
)
from localspec.errors import InvalidOptions
from tests.bench.documents import concluded, document, run

STARTED = count()


def part(
    workload: str = "edit-short", *, slow: float = 1.0, cases: tuple[str, ...] = ("a",), **fields: Any
) -> Results:
    """Two repeats of plain decoding and ``auto``, which is twice as fast, on a machine so ``slow``.

    In the case ``b`` it is as slow as plain decoding. No part begins with another, or takes as long.
    """
    began = next(STARTED)
    runs = [
        run(
            who,
            workload=workload,
            case=case,
            repeat=repeat,
            decode_s=seconds * slow,
            total_s=100 + began + repeat / 10,
        )
        for repeat in range(2)
        for case in cases
        for who, seconds in ((PLAIN, 1.0), (CONTROL, 1.0), ("auto", 1.0 if case == "b" else 0.5))
    ]
    return concluded(document(runs, **({"started": f"2026-01-01, part {began}"} | fields)))


def test_one_part_is_the_whole() -> None:
    alone = part()
    assert merged([alone]) is alone


def test_workloads_come_together() -> None:
    whole = merged([part("edit-short", duration_s=60.0), part("chat", duration_s=30.0)])
    assert {f.workload for f in whole.figures if f.contestant == "auto"} == {"edit-short", "chat"}
    assert whole.setting.workloads == ("edit-short", "chat")
    assert whole.duration_s == 90
    goals = {goal.name: goal.met for goal in whole.goals}
    assert goals["chat: mean of auto against plain"] is True
    assert goals["story: mean of auto against plain"] is None


def test_repeats_go_on_counting_so_that_only_neighbours_are_compared() -> None:
    """The second part ran on a machine ten times as slow: no ratio shows it."""
    whole = merged([part(), part(slow=10.0)])
    assert {r.repeat for r in whole.runs} == {0, 1, 2, 3}
    (auto,) = (f for f in whole.figures if f.contestant == "auto")
    assert auto.repeats == [2.0] * 4


def test_a_part_that_left_cases_out_has_no_share_in_medians() -> None:
    whole = merged([part(left_out=["edit-short / b", "edit-short / c"]), part(cases=("a", "b"))])
    (auto,) = (f for f in whole.figures if f.contestant == "auto")
    assert auto.repeats == pytest.approx([4 / 3] * 2)
    assert auto.requests == 2
    assert whole.left_out == ["edit-short / c"]


def test_the_same_run_twice_is_refused() -> None:
    one, other = part(), part()
    same_start = part("chat", started=one.started)
    renamed = msgspec.structs.replace(one, started="another day")
    for documents in ([one, one], [one, other, same_start], [other, one, renamed]):
        with pytest.raises(InvalidOptions, match="are, or hold, the same run") as caught:
            merged(documents)
        assert "--from once" in caught.value.remedy


def test_a_part_of_what_was_put_together_is_refused() -> None:
    one, other = part(), part()
    whole = merged([one, other])
    with pytest.raises(InvalidOptions, match="are, or hold, the same run"):
        merged([whole, other])
    with pytest.raises(InvalidOptions, match="are, or hold, the same run"):
        restarts = [Restart("kept", 0, 0.5, 0.4, 1.0)]
        merged([document([], started=name, restarts=restarts) for name in ("one", "other")])


def test_what_is_measured_once_is_the_first_ones_that_has_it() -> None:
    one, other = part(), part("chat")
    one.curves = [Curve("target", 512, {1: 0.01})]
    other.curves = [Curve("target", 512, {1: 0.02}), Curve("draft 0.1", 512, {1: 0.001})]
    other.overheads = [Overhead("m", 8192, "auto", 10, 0.01)]
    whole = merged([one, other])
    assert whole.curves == [one.curves[0], other.curves[1]]
    assert whole.overheads == other.overheads


def test_special_workloads_of_all_parts_are_kept() -> None:
    one, other = part(), part("chat")
    one.two_up = [TwoUp("auto", 9, 0.2, 0.2, 0.01, 0.01, share=1 / 3)]
    other.two_up = [TwoUp("auto", 9, 0.2, 0.2, 0.01, 0.01, share=1 / 3, diverged=4)]
    one.restarts, other.restarts = ([Restart("kept", 0, 0.5, 0.4, 1.0, diverged=n)] for n in (3, 0))
    (greedy,) = (g for g in merged([one, other]).goals if g.name.startswith("greedy text"))
    assert greedy.met is False and greedy.figure.startswith("7 in ")


def test_what_failed_in_one_part_failed() -> None:
    one, other = part(failures={"auto": "device lost"}), part("chat", left_out=["chat / b"])
    whole = merged([one, other])
    assert (whole.failures, whole.left_out) == ({"auto": "device lost"}, ["chat / b"])
    assert {goal.met for goal in whole.goals if goal.name.startswith("chat")} == {None}


def cases_of(workload: str, cases: int | None, *, quick: bool = False) -> Results:
    return part(workload, setting=Setting(5, quick, (workload,), 2048, cases=cases))


def test_a_workload_comes_together_only_if_its_cases_are_the_same() -> None:
    merged([cases_of("edit-short", 2), cases_of("chat", 4), cases_of("chat", 4)])
    for other in (cases_of("chat", None), cases_of("chat", 2), cases_of("chat", 4, quick=True)):
        with pytest.raises(InvalidOptions, match="different cases of chat"):
            merged([cases_of("edit-short", 2), cases_of("chat", 4), other])


def test_parts_are_left_as_they_are() -> None:
    one, other = part(), part()
    before = msgspec.json.encode(other)
    merged([one, other])
    assert msgspec.json.encode(other) == before


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"machine": Machine("another CPU", 2, 1, "Linux", 0, {})}, "machines"),
        ({"models": [Model("target", "x", 1, None, None, None, "1" * 64)]}, "models"),
        ({"models": [Model("draft", "x", 1, None, None, None, "0" * 64)]}, "models"),
        ({"setting": Setting(5, False, ("chat",), 4096)}, "context lengths"),
    ],
)
def test_what_was_measured_on_something_else_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptions, match=said):
        merged([part(), part("chat", **fields)])
