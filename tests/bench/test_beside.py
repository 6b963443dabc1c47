"""localspec beside llama-server, which is a stand-in: the real one is not on every machine."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from assets.bench.asking import GAP, Answer, Question, one
from assets.bench.beside import Case, Contestant, Place, load_cases, runs_of
from assets.bench.results import (
    AGAIN,
    AUTO,
    NONE,
    PLAIN,
    Results,
    Run,
    best_of,
    by_turn,
    markdown,
    table,
    verdict,
)
from assets.bench.servers import Server
from localspec.models.catalogue import bundled_model

MODEL = bundled_model("stdlib-1m")
PLACE = Place(MODEL, None, 2)
CHAT = Question(one("hi"))


def answer_of(rate: float | None, text: str = "a", drafted: int = 0, accepted: int = 0) -> Answer:
    return Answer(5.0, 1.0, rate, 10, drafted, accepted, text)


def run(contestant: str, answer: Answer, *, turn: int = 0, fresh: bool = True) -> Run:
    return Run("edit", 0, turn, 0, contestant, fresh, answer)


class Scripted(Contestant):
    asked: dict[str, list[Question]] = {}

    def answer(self, question: Question, tokens: int) -> Answer:
        self.asked.setdefault(self.name, []).append(question)
        return answer_of(10.0, f"{self.name} after {len(question.messages)}")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], tuple[list[Run], dict[str, list[Question]]]]:
    def play(case: Case) -> tuple[list[Run], dict[str, list[Question]]]:
        monkeypatch.setattr(Scripted, "asked", {})
        addresses = {PLAIN: "other", AUTO: "ours", NONE: "ours"}
        every: list[Contestant] = [
            Scripted(name, Server(address, {}), {"localspec": {}}) for name, address in addresses.items()
        ]
        return list(runs_of(every, [case], PLACE._replace(draft=MODEL), 8, 1)), Scripted.asked

    return play


def test_the_cases_are_those_of_the_file_by_turns() -> None:
    cases = load_cases()
    workloads = list(dict.fromkeys(case.workload for case in cases))
    assert [case.workload for case in cases[: len(workloads)]] == workloads and len(workloads) > 8
    assert all((GAP in case.prompts[0]) == (case.kind == "fim") for case in cases)
    assert {case.workload for case in load_cases(["chat", "json"])} == {"chat", "json"}
    with pytest.raises(SystemExit, match=r"unknown workloads: cat\. Choose among: edit, "):
        load_cases(["cat"])


def test_all_go_on_from_plain_llama_servers_answers(
    played: Callable[[Case], tuple[list[Run], dict[str, list[Question]]]],
) -> None:
    runs, asked = played(Case("turns", ("one", "two")))
    assert [run.contestant for run in runs] == [PLAIN, AUTO, NONE, AUTO, NONE, PLAIN]
    assert [run.fresh for run in runs] == [True, True, False, True, False, True]
    for questions in asked.values():
        greeting, first, second = ([message.content for message in each.messages] for each in questions)
        assert (greeting, first) == (["Hello"], ["1. one"])
        assert second == ["1. one", f"{PLAIN} after 1", "two"]


def test_contestants_that_remember_are_taught_before_a_case(
    played: Callable[[Case], tuple[list[Run], dict[str, list[Question]]]],
) -> None:
    for by in ("model", "draft"):
        runs, asked = played(Case("warm", ("two",), taught=("one",), taught_by=by))
        assert len(runs) == 3
        assert {name: len(questions) for name, questions in asked.items()} == {PLAIN: 2, AUTO: 3, NONE: 2}


def test_tables_compare_the_answers_of_a_turn() -> None:
    results = Results(
        [
            run(PLAIN, answer_of(10.0)),
            run(AUTO, answer_of(15.0, drafted=8, accepted=6)),
            run(NONE, answer_of(12.0), fresh=False),
            run(AGAIN, answer_of(30.0, "b")),
            run(PLAIN, answer_of(20.0), turn=1),
            run(AUTO, answer_of(16.0, "c", drafted=2), turn=1),
            run(NONE, answer_of(20.0), turn=1, fresh=False),
            run(AUTO, answer_of(99.0), turn=2),  # cut short
        ]
    )
    auto, none = results.figures("edit", AUTO), results.figures("edit", NONE)
    assert auto is not None and none is not None and results.figures("chat", AUTO) is None
    assert msgspec.structs.astuple(auto) == (15.5, pytest.approx(1.15), 0.8, 0.6, 0.3, 5.0, 1, 2)
    assert (none.first_ms, none.equal, none.accepted) == (None, 2, None)
    assert best_of(results, "edit") == (PLAIN, 15.0)
    assert "auto  15.5 ≥  15.0 llama-server plain; least against own plain 0.80x" in verdict(results)
    assert f"| {AUTO} | 15.5 (1.15) |" in markdown(results)
    assert by_turn(results).splitlines()[2].split() == ["localspec", "auto", "15.0", "16.0"]
    assert " ".join(table(results).splitlines()[2].split()[2:]) == "15.5 1.15x 0.80x 60% 30% 5 ms 1/2"
    assert table(Results([])) == verdict(Results([])) == by_turn(Results([])) == ""
