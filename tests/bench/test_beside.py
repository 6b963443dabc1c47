"""localspec beside llama-server, which is a stand-in: the real one is not on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assets.bench import beside
from assets.bench.asking import GAP, Answer, Question, ask, one
from assets.bench.beside import (
    SETTINGS,
    SWEEP,
    THEIRS,
    Case,
    Contestant,
    Place,
    arguments_of,
    contestants,
    load_cases,
    names_for,
    read,
    runs_of,
    watched,
)
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
from assets.bench.servers import VARIABLE, LlamaServer, Server
from localspec.models.bundled import bundled_model
from tests.bench import stand_in

MODEL = bundled_model("stdlib-1m")
PLACE = Place(MODEL, None, 2)
CHAT = Question(one("hi"))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "llama-server"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{stand_in.__file__}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(path))


def answer_of(rate: float | None, text: str = "a", drafted: int = 0, accepted: int = 0) -> Answer:
    return Answer(5.0, 1.0, rate, 10, drafted, accepted, text)


def run(contestant: str, answer: Answer, *, turn: int = 0, fresh: bool = True) -> Run:
    return Run("edit", 0, turn, 0, contestant, fresh, answer)


class Scripted(Contestant):
    """A contestant whose answers say what it was asked, by a function and not by a server."""

    heard: dict[str, list[Question]] = {}

    def answer(self, question: Question, tokens: int) -> Answer:
        self.heard.setdefault(self.name, []).append(question)
        return answer_of(10.0, f"{self.name} after {len(question.messages)}")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], tuple[list[Run], dict[str, list[Question]]]]:
    def play(case: Case) -> tuple[list[Run], dict[str, list[Question]]]:
        monkeypatch.setattr(Scripted, "heard", {})
        addresses = {PLAIN: "theirs", AUTO: "ours", NONE: "ours"}
        every: list[Contestant] = [
            Scripted(name, Server(address, {}), {"localspec": {}}) for name, address in addresses.items()
        ]
        return list(runs_of(every, [case], PLACE._replace(draft=MODEL), 8, 1)), Scripted.heard

    return play


@pytest.mark.usefixtures("program")
def test_answers_are_read_in_three_dialects() -> None:
    with LlamaServer(MODEL) as theirs:
        chat = ask(theirs.server, CHAT, 8)
        raw = ask(theirs.server, CHAT._replace(kind="raw"), 8)
        gap = ask(theirs.server, Question(one(f"x{GAP}y"), "fim").numbered(7), 8)
    assert (chat.text, raw.text, gap.text) == ("to: hi", "ab", "# 7\nx|y")
    assert min(chat.first_ms, raw.first_ms) > 0 and gap.rate == 500.0
    assert (chat.tokens, chat.drafted, chat.accepted) == (3, 2, 1)


def test_a_setting_is_its_kind_and_the_values_of_its_arguments() -> None:
    assert arguments_of("plain", None) == arguments_of("plain again", None) == ()
    sizes = ("--spec-ngram-mod-n-match", "16", "--spec-ngram-mod-n-min", "2", "--spec-ngram-mod-n-max", "16")
    assert arguments_of("ngram-mod 16/2/16", None) == ("--spec-type", "ngram-mod", *sizes)
    drafting = ("--spec-type", "draft-simple", "--model-draft", "d.gguf", "--spec-draft-n-max", "3")
    assert arguments_of("draft-simple 3", Path("d.gguf")) == drafting
    for setting in (*SETTINGS, *(f"{kind} {sizes}" for kind, each in SWEEP.items() for sizes in each)):
        assert len(arguments_of(setting, MODEL)) >= 2 or setting == "plain"


def test_contestants_are_chosen_by_name_and_plain_llama_server_is_always_there_twice() -> None:
    chosen = names_for([AUTO, "llama-server ngram-simple 5/16"], None)
    assert chosen == [AUTO, "llama-server ngram-simple 5/16", PLAIN, AGAIN]
    assert [name for name in names_for([], None) if "draft" in name] == []
    assert len([name for name in names_for([], MODEL) if "draft" in name]) == 2
    for unknown in ("localspec automatic", "llama-server ngram", "auto"):
        with pytest.raises(
            SystemExit, match=f"unknown contestant: '{unknown}'. Choose among: localspec none"
        ):
            names_for([unknown], None)


@pytest.mark.usefixtures("program")
def test_servers_that_do_not_fit_into_memory_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [THEIRS + "ngram-cache", PLAIN, AGAIN]
    with contestants(names, PLACE) as every:
        assert [each.name for each in every] == names
    monkeypatch.setattr(beside, "needed", lambda model: float("inf"))
    with contestants(names, PLACE) as every:
        assert every == []
    assert capsys.readouterr().err.count("is left out: there is no memory for one more server") == 3


def test_a_server_that_does_not_start_is_an_error_with_its_log(program: None) -> None:
    with pytest.raises(SystemExit, match="did not start: --model .* --fail"):
        LlamaServer(MODEL, ("--fail",))


def test_without_the_program_it_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/no/such/program")
    with pytest.raises(SystemExit, match="put it on PATH"):
        LlamaServer(MODEL)


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
    runs, heard = played(Case("turns", ("one", "two")))
    assert [run.contestant for run in runs] == [PLAIN, AUTO, NONE, AUTO, NONE, PLAIN]
    assert [run.fresh for run in runs] == [True, True, False, True, False, True]
    for questions in heard.values():
        greeting, first, second = ([message.content for message in each.messages] for each in questions)
        assert (greeting, first) == (["Hello"], ["1. one"])
        assert second == ["1. one", f"{PLAIN} after 1", "two"]


def test_contestants_that_remember_are_taught_before_a_case(
    played: Callable[[Case], tuple[list[Run], dict[str, list[Question]]]],
) -> None:
    for by in ("model", "draft"):
        runs, heard = played(Case("warm", ("two",), taught=("one",), taught_by=by))
        assert len(runs) == 3
        assert {name: len(questions) for name, questions in heard.items()} == {PLAIN: 2, AUTO: 3, NONE: 2}


def test_runs_are_written_as_they_come_and_end_with_the_time(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    file.write_bytes(b"{}\n")
    runs = [run(PLAIN, answer_of(10.0)), run(AUTO, answer_of(None))]
    assert watched(runs, float("inf"), file) == read(file) == runs
    assert watched(runs, 0.0, None) == runs[:1]

    def stopped() -> object:
        yield runs[0]
        raise KeyboardInterrupt

    assert watched(stopped(), float("inf"), None) == runs[:1]  # type: ignore[arg-type]


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
    assert table(results).splitlines()[2].split()[2:] == [
        "15.5",
        "1.15x",
        "0.80x",
        "60%",
        "30%",
        "5",
        "ms",
        "1/2",
    ]
    assert table(Results([])) == verdict(Results([])) == by_turn(Results([])) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_a_daemon_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", "")  # it has one of its own
    arguments = ["beside", "--workload", "code", "--workload", "fim", "--cases", "2", "--tokens", "24"]
    only = [
        "--only",
        AUTO,
        "--only",
        "localspec draft",
        "--draft",
        str(MODEL),
        "--json",
        str(tmp_path / "runs"),
    ]
    monkeypatch.setattr(sys, "argv", [*arguments, *only])
    beside.main()
    shown = capsys.readouterr().out
    assert shown.count("localspec draft") == 2 and "llama-server ngram" not in shown
    monkeypatch.setattr(sys, "argv", ["beside", "--show", str(tmp_path / "runs")])
    beside.main()
    assert capsys.readouterr().out == shown
