"""Cases are answered in turn, and figures follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.bench.run import BenchRun, Case, Order, Player, Results, figures_of, load_cases, measure
from localspec.engine.engine import Engine
from localspec.engine.load import choose_here
from localspec.errors import InvalidOptions
from localspec.protocol.requests import ChatPrompt, EngineConfig, Message, TextPrompt
from tests.toys import scripted, toy_engine

TEXT = b"ab" + b"c" * 60


@pytest.fixture
def order() -> Order:
    config = EngineConfig(n_ctx=1024, parallel=1, threads=1, rpc=("127.0.0.1:1",))
    return Order(choose_here("bundled", "none", config=config), config, "auto", tokens=16, runs=1)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with toy_engine(scripted(TEXT)) as engine:
        yield engine


def run(workload: str = "edit", **changes: Any) -> BenchRun:
    usual = BenchRun(
        workload=workload,
        case=0,
        plain=(10.0, 10.0),
        speculative=(20.0, 20.0),
        decoded=60,
        rounds=20,
        drafted=50,
        accepted=40,
        equal=True,
    )
    return msgspec.structs.replace(usual, **changes)


def results(*runs: BenchRun) -> Results:
    found = Results(model="m", draft=None, backend="toy", proposer="auto", machine="a & b", runs=list(runs))
    found.conclude()
    return found


def test_a_case_is_answered_plainly_and_by_the_proposer(engine: Engine, order: Order) -> None:
    player, case = Player(engine, msgspec.structs.replace(order, tokens=40)), Case("code", ("ab",), raw=True)
    prompt = player.prepare(case)
    assert prompt == TextPrompt("ab")
    found = player.measure(7, case, prompt)
    assert found is not None and found.equal
    assert (found.workload, found.case, found.decoded) == ("code", 7, 2 * 39)
    assert 0 < found.accepted <= found.drafted and found.rounds + found.accepted == found.decoded
    assert min(*found.plain, *found.speculative) > 0


def test_an_answer_of_one_token_has_no_speed(engine: Engine, order: Order) -> None:
    player, case = Player(engine, msgspec.structs.replace(order, tokens=1)), Case("code", ("ab",), raw=True)
    assert player.measure(0, case, player.prepare(case)) is None


def test_a_second_turn_follows_the_first_answer(engine: Engine, order: Order) -> None:
    prompt = Player(engine, order).prepare(Case("second turn", ("one", "two")))
    assert isinstance(prompt, ChatPrompt)
    first, answer, second = prompt.messages
    assert (first, second) == (Message("user", "one"), Message("user", "two"))
    assert answer.role == "assistant"


def test_a_taught_case_begins_anew(engine: Engine, order: Order) -> None:
    prompt = Player(engine, order).prepare(Case("warm memory", ("one", "two"), taught=True))
    assert prompt == ChatPrompt((Message("user", "two"),))


def test_all_is_measured_on_a_real_model(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    seen: list[str] = []
    found = measure(order, lambda what, fraction: seen.append(what))
    workloads = ["edit", "chat", "code", "json", "second turn", "warm memory"]
    assert [figure.workload for figure in found.figures] + found.left_out == workloads
    assert not found.stopped and all(figure.equal for figure in found.figures)
    assert seen[-1] == "measuring warm memory"
    assert not (tmp_path / "data").exists()  # the user's memory learns nothing


def test_ctrl_c_keeps_the_runs_until_then(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))

    def impatient(what: str, fraction: float) -> None:
        if what == "measuring json":
            raise KeyboardInterrupt

    chosen = msgspec.structs.replace(order, workloads=("chat", "json"))
    found = measure(chosen, impatient)
    assert found.stopped and [figure.workload for figure in found.figures] == ["chat"]
    with pytest.raises(KeyboardInterrupt):
        measure(msgspec.structs.replace(order, workloads=("json",)), impatient)


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="did you mean 'edit'"):
        load_cases(("edti",))


def test_figures_are_medians_over_runs() -> None:
    slow, odd = run(speculative=(4.0, 6.0)), run(speculative=(30.0, 30.0), equal=False)
    (figure,) = figures_of([run(), slow, odd])
    assert (figure.plain, figure.speculative, figure.ratio, figure.worst) == (10.0, 20.0, 2.0, 0.5)
    assert (figure.acceptance, figure.tokens_per_round, figure.equal) == (0.8, 3.0, False)


def test_without_drafts_there_is_no_acceptance() -> None:
    (figure,) = figures_of([run(drafted=0, accepted=0)])
    assert figure.acceptance is None


def test_noise_is_the_difference_of_the_plain_answers() -> None:
    assert results(run(), run(plain=(10.0, 12.0))).noise == pytest.approx(0.2)
    assert results().noise is None
