"""The benchmark as a whole, and the references among its contestants."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.backends.toy import ToyBackend
from localspec.bench.bench import Bench, Order, ceilings_of, overheads_of
from localspec.bench.curve import CostLine
from localspec.bench.measure import Script, Step, record
from localspec.bench.oracle import plain_seconds
from localspec.bench.references import Answer, Question, RawLoop
from localspec.bench.results import Contestant
from localspec.bench.rivals import Player, Rival, opened, rivals_of, worth_repeating
from localspec.bench.stand import Stand, load_stand
from localspec.bench.workload import Case, Turn, load_workload, quick
from localspec.errors import BackendUnavailable, InvalidOptions
from localspec.models.bundled import bundled_model
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import TextPrompt
from tests.bench import stand_in
from tests.bench.documents import run
from tests.toys import small_markov

pytestmark = pytest.mark.slow
"""models are written and run: half a minute"""

TARGET, DRAFT = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")
SMALL = EngineConfig(n_ctx=1024, parallel=1, threads=1)


def silent(what: str, fraction: float) -> None:
    assert what
    assert 0 <= fraction <= 1


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_LLAMA_SERVER", "/no/such/server")
    return tmp_path


def order(**changes: object) -> Order:
    small = Order(target=TARGET, draft=DRAFT, config=SMALL, quick=True, workloads=("chat",), runs=1)
    return small._replace(**changes)  # type: ignore[arg-type]


# The whole.


def test_a_quick_run_has_everything_it_promises(home: Path) -> None:
    bench = Bench(order(contestants=("auto", "memory")), silent)
    results = bench.run()
    assert {r.contestant for r in results.runs} == {"none", "none (again)", "auto", "memory"}
    assert len(results.ceilings) == len(bench.logs) == 2
    assert all(0 < c.truth_s <= c.router_s <= c.plain_s for c in results.ceilings)
    assert {c.proposer for c in results.propose_costs} == {"prompt-lookup", "memory"}
    assert {o.contestant for o in results.overheads} == {"none", "auto", "memory"}
    assert len(results.figures) == 4
    assert results.peak_memory and results.duration_s > 0
    assert results.stopped is None
    assert not (home / "data").exists()


def test_an_interrupted_run_keeps_what_was_measured(home: Path) -> None:
    """The interruption comes where a signal's would: in the middle of a contestant's turn."""
    seen: list[str] = []

    def impatient(what: str, fraction: float) -> None:
        seen.append(what)
        if what == "chat: memory":
            raise KeyboardInterrupt

    bench = Bench(order(contestants=("memory",)), impatient)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.results.stopped == "interrupted"
    assert {r.contestant for r in bench.results.runs} == {"none", "none (again)"}
    assert {f.contestant for f in bench.results.figures} == {"none", "none (again)"}
    assert seen[-1] == "chat: memory"


def test_a_run_that_an_error_ends_keeps_what_was_measured(home: Path) -> None:
    def failing(what: str, fraction: float) -> None:
        if what == "propose and observe":
            raise BackendUnavailable("the disk is full")

    bench = Bench(order(contestants=("memory",)), failing)
    with pytest.raises(BackendUnavailable):
        bench.run()
    assert bench.results.stopped == "ended by an error (the disk is full)"
    assert {f.contestant for f in bench.results.figures} == {"none", "none (again)", "memory"}


def test_a_quick_run_that_is_late_leaves_cases_out_and_says_which(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.bench.bench.QUICK_BUDGET_S", 0.0)
    results = Bench(order(contestants=("auto",), runs=5), silent).run()
    assert len(results.runs) == 3
    (first,) = {run.case for run in results.runs}
    (left_out,) = results.left_out
    assert left_out.startswith("chat / ") and first not in left_out
    assert len(results.ceilings) == 1


def test_logs_of_a_workload_stand_together(home: Path) -> None:
    """Cases are recorded in turns; a contestant that replays them learns one workload after the other."""
    bench = Bench(order(workloads=("edit-short", "chat")), silent)
    assert [log.workload for log in bench.record()] == ["edit-short"] * 2 + ["chat"] * 2


def test_recording_measures_nothing(home: Path) -> None:
    told: list[tuple[str, float]] = []
    bench = Bench(order(), lambda what, fraction: told.append((what, fraction)))
    logs = bench.record()
    assert told[-2:] == [("recording chat: 1 of 2", 0.0), ("recording chat: 2 of 2", 0.5)]
    assert [(log.workload, log.turn) for log in logs] == [("chat", 0), ("chat", 0)]
    assert all(log.prompt and log.output for log in logs)
    assert bench.results.runs == []


def test_preparing_the_models_is_told_before_it_begins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []
    began = []

    def inflated(source: Path, shape: object, progress: object) -> Path:
        began.append(told[-1])
        return source

    monkeypatch.setattr("localspec.bench.bench.inflated_model", inflated)
    Bench(order(target=None, draft=None), lambda what, fraction: told.append((what, fraction)))
    assert began == [("inflating the draft 0.1", 0.0), ("inflating the target", 0.0)]


def test_a_workload_that_nobody_knows(home: Path) -> None:
    with pytest.raises(InvalidOptions, match="did you mean 'story'"):
        Bench(order(workloads=("stroy",)), silent)


def test_a_quick_run_has_no_references(home: Path) -> None:
    with pytest.raises(InvalidOptions, match="no contestant"):
        Bench(order(contestants=("llama.cpp",)), silent)
    bench = Bench(order(quick=False, contestants=("llama.cpp",)), silent)
    assert [c.name for c in bench.results.contestants] == ["none", "none (again)", "llama.cpp"]


# Whoever fails.


def test_a_server_that_dies_leaves_the_others_alone(home: Path) -> None:
    program = home / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{stand_in.__file__}" dies "$@"\n')
    program.chmod(0o755)
    who = ("auto", "llama.cpp", "llama-server plain")
    asked = order(workloads=("edit-short",), contestants=who, quick=False, cases=1, llama_server=program)
    results = Bench(asked, silent).run()
    assert {r.contestant for r in results.runs} == {"none", "none (again)", "auto", "llama.cpp"}
    assert results.stopped is None
    assert list(results.failures) == ["llama-server plain"]
    assert "out of memory, they say" in results.failures["llama-server plain"]


# Parts.


def test_overhead_is_what_a_round_takes_beside_its_forward() -> None:
    stand = Stand(ToyBackend(), {}, EngineConfig())
    runs = [
        run("auto", round_s=1.1, forward_s=1.0, rounds=5),
        run("auto", round_s=3.2, forward_s=3.0, rounds=9),
    ]
    (found,) = overheads_of([*runs, run("memory")], "toy", stand)
    assert (found.contestant, found.rounds, found.vocabulary) == ("auto", 14, 260)
    assert found.share == pytest.approx(0.075)


def toy_scripts(stand: Stand) -> list[Script]:
    turn = Turn(prompt=TextPrompt("abcabcabc"), options=Options(max_tokens=40, temperature=0.0))
    return record(stand, [Case("edit-short", "one", (turn, turn))])


def test_a_router_with_a_draft_model_that_knows_everything_is_the_truth() -> None:
    rule, cost = small_markov(2, sharpness=3.0), CostLine({1: 1.0, 2: 1.1})
    stand = Stand(ToyBackend(rule), {"twin": ToyBackend(rule)}, EngineConfig())
    (script,) = toy_scripts(stand)
    free = CostLine({1: 1e-12})
    for ceiling in ceilings_of(script, stand, {"target": cost, "twin": free}):
        assert ceiling.draft == "twin"
        assert ceiling.plain_s == plain_seconds(ceiling.tokens, cost)
        assert ceiling.router_s == pytest.approx(ceiling.truth_s)


def test_without_a_draft_model_the_router_knows_lookup_and_memory() -> None:
    """The second turn repeats the prompt: the memory has the answer by then."""
    stand = Stand(ToyBackend(small_markov(2, sharpness=3.0)), {}, EngineConfig())
    (script,) = toy_scripts(stand)
    first, second = ceilings_of(script, stand, {"target": CostLine({1: 1.0})})
    assert first.draft is None
    assert second.router_s < first.router_s


# References.


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    loaded = load_stand(TARGET, {}, SMALL, silent)
    yield loaded
    loaded.close()


def test_a_reference_answers_what_we_answer(stand: Stand) -> None:
    scripts = record(stand, quick(load_workload("edit-short")))
    rival = Rival(Contestant("llama.cpp", "raw", reference=True), lambda: RawLoop(TARGET, SMALL))
    with opened([rival], stand.target.vocabulary, stand.target.capabilities.n_ctx, {}) as players:
        runs = list(players["llama.cpp"].play(scripts[0].steps))
    logs = [step.log for step in scripts[0].steps]
    assert [r.completion_tokens for r in runs] == [len(log.output) for log in logs]
    assert [r.prompt_tokens for r in runs] == [len(log.prompt) for log in logs]
    assert all(r.tokens_per_s and r.exact for r in runs)


class Counting:
    """A reference that counts its questions, and the end token among what it decoded."""

    name = "counting"

    def __init__(self) -> None:
        self.said: list[str] = []

    def fresh(self) -> None:
        self.said.append("fresh")

    def answer(self, question: Question) -> Answer:
        self.said.append(f"{len(question.tokens)} tokens")
        return Answer("text", (1, 2, 3), ttft_s=0.5, decode_s=3.0, decoded=3, drafted=4, accepted=1)

    def close(self) -> None:
        self.said.append("closed")


def steps(stand: Stand) -> list[Step]:
    turn = Turn(prompt=TextPrompt("abc"), options=Options(max_tokens=3, temperature=0.8))
    return record(stand, [Case("chat", "one", (turn, turn))])[0].steps


def test_a_reference_begins_each_case_anew_and_is_closed(stand: Stand) -> None:
    counting = Counting()
    rival = Rival(Contestant("counting", "counting", reference=True), lambda: counting)
    with opened([rival], stand.target.vocabulary, 512, {}) as players:
        asked = steps(stand)
        for _ in range(2):
            assert len(list(players["counting"].play(asked))) == 2
    tokens = f"{len(asked[0].log.prompt)} tokens"
    assert counting.said == ["fresh", tokens, tokens] * 2 + ["closed"]


def test_a_reference_that_counts_the_end_token_is_as_fast_as_it_was(stand: Stand) -> None:
    (found, _) = Player(Counting(), stand.target.vocabulary, 512).play(steps(stand))
    assert found.tokens_per_s == pytest.approx(1.0)
    assert (found.drafted, found.accepted, found.exact) == (4, 1, False)


def test_a_reference_is_asked_for_no_more_than_the_context_holds(stand: Stand) -> None:
    asked = steps(stand)
    room = 2
    n_ctx = len(asked[0].log.prompt) + room
    with RawLoop(TARGET, SMALL) as raw:
        player = Player(raw, stand.target.vocabulary, n_ctx)
        assert {r.completion_tokens for r in player.play(asked)} <= {1, room}


def test_which_references_there_are_without_a_server(home: Path) -> None:
    names = [rival.contestant.name for rival in rivals_of(TARGET, DRAFT, SMALL, None)]
    assert names == ["llama.cpp", "llama-cpp-python lookup n=2 k=10", "llama-cpp-python lookup n=2 k=2"]


def test_a_server_that_is_named_must_be_there(home: Path) -> None:
    with pytest.raises(BackendUnavailable, match="was not found"):
        rivals_of(TARGET, DRAFT, SMALL, Path("/no/such/server"))


def test_which_settings_of_a_server_there_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    rivals = rivals_of(TARGET, DRAFT, SMALL, program)
    assert {r.kind for r in rivals} == {None, "plain", "ngram-simple", "ngram-mod", "draft-simple"}
    defaults = [r.contestant.name for r in rivals if r.is_default]
    assert len(defaults) == 4
    assert not [r for r in rivals_of(TARGET, None, SMALL, program) if r.kind == "draft-simple"]


def rival(name: str, kind: str | None, *, default: bool = False) -> Rival:
    return Rival(Contestant(name, kind or name, reference=True), Counting, kind, default)


def test_defaults_and_the_best_of_each_kind_go_on() -> None:
    rivals = [
        rival("raw", None),
        *(rival(name, "simple", default=name == "simple 1") for name in ("simple 1", "simple 2", "simple 3")),
        *(rival(name, "mod", default=name == "mod 1") for name in ("mod 1", "mod 2")),
    ]
    seconds = {"raw": 9.0, "simple 1": 2.0, "simple 2": 1.0, "simple 3": 3.0, "mod 1": 1.0, "mod 2": 2.0}
    runs = [run(name, decode_s=s) for name, s in seconds.items()]
    kept = [r.contestant.name for r in worth_repeating(rivals, runs)]
    assert kept == ["raw", "simple 1", "simple 2", "mod 1"]
