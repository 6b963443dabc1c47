"""Learning and measuring of an idle engine, and the records that it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.backends.base import ANY_WIDTH, PRESUMED, Rounding
from localspec.engine import idle
from localspec.engine.account import Account
from localspec.engine.engine import Engine
from localspec.engine.learning import KnownPair, Learning
from localspec.memory.memory import Memory
from localspec.memory.ngrams import ORDERS
from localspec.memory.table import INSERTED_AT, NUMBER
from localspec.models.machine import processor_name
from localspec.models.model import model_at
from localspec.models.records import FORMAT, PairResults
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, ProposerStats, Request, Stats
from localspec.speculation.controller import CAUTIOUS_K, Calibration, Controller, Survival
from localspec.speculation.costs import STALE, CostCurve
from tests.conformance.proposer import ask
from tests.speculation.test_controller import TRUTH, Coin, play
from tests.toy import ToyBackend, ToyVocabulary, markov
from tests.toys import request, rested, run_all, scripted, small_markov

SONG = b"la la la li la la la lo la la la li la la la lo"


@pytest.fixture(autouse=True)
def time_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to open a table than a request gives it."""
    monkeypatch.setattr(idle, "REMEMBER_S", 60.0)


def engine_with(directory: Path | None, *, draft: bool = False, noise: float = 0.0) -> Engine:
    target = ToyBackend(small_markov(3), noise=noise)
    model = ToyBackend(small_markov(4)) if draft else None
    if model is not None:
        model.description = "another toy"
    return Engine(target, model, learning=Learning(target, directory=directory))


def test_costs_are_measured_at_idle_time_and_kept(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, draft=True)
    assert rested(engine) > 20
    costs = engine.learning.costs
    assert all(costs.knows(width, 300) for width in (1, 2, 4, 8, 21))
    engine.close()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    again = engine_with(tmp_path, draft=True)
    assert again.learning.costs.line(300) == pytest.approx(costs.line(300), rel=2 * STALE)
    assert rested(again) <= 3


def test_rounding_is_measured_once_and_known_the_next_time(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, noise=0.05)
    engine.learning.rounding.measured = None
    rested(engine)
    found = engine.learning.rounding.measured
    assert found is not None and engine.target.capabilities.exact_width == found.exact_width == 1
    engine.close()
    again = ToyBackend(small_markov(3), noise=0.05)
    learning = Learning(again, directory=tmp_path)
    learning.know_rounding(again)
    assert again.capabilities.exact_width == 1 and not again.forwards


def test_rounding_that_is_not_known_is_presumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.backends.base.ENOUGH_S", 0.0)
    target = ToyBackend(markov())
    learning = Learning(target, directory=tmp_path)
    learning.rounding.measured = None
    monkeypatch.setattr("localspec.engine.learning.measure_rounding", lambda backend: None)
    learning.know_rounding(target)
    assert target.capabilities.exact_width == PRESUMED.exact_width


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 9, "of": "x"}', "\0"]
)
def test_a_spoilt_record_costs_what_was_learnt_and_no_more(tmp_path: Path, content: str) -> None:
    engine = engine_with(tmp_path)
    rested(engine)
    engine.close()
    for path in tmp_path.iterdir():
        path.write_text(content)
    again = engine_with(tmp_path)
    assert not again.learning.costs.knows(2, 300)
    rested(again)
    again.close()
    assert all(json.loads(path.read_text())["format"] == FORMAT for path in tmp_path.iterdir())


SOUND = {"exact_width": 3, "exact_batches": True}


@pytest.mark.parametrize("width", [0, -3, 9, 65, ANY_WIDTH])
def test_a_rounding_record_with_nonsense_is_refused(width: int) -> None:
    learning = Learning(ToyBackend(markov()))
    with pytest.raises(ValueError, match="exact_width"):
        learning.rounding.restore(SOUND | {"exact_width": width})
    assert learning.rounding.measured is None
    learning.rounding.restore(SOUND)
    assert learning.rounding.measured == Rounding(exact_width=3, exact_batches=True)


def test_what_was_probed_with_a_small_context_is_not_believed_of_a_larger_one(tmp_path: Path) -> None:
    small = ToyBackend(markov(), n_ctx=64)
    learning = Learning(small, directory=tmp_path)
    learning.know_rounding(small)
    learning.save()
    assert Learning(small, directory=tmp_path).rounding.measured is not None
    large = ToyBackend(markov(), n_ctx=512)
    assert Learning(large, directory=tmp_path).rounding.measured is None


class Thinking(ToyVocabulary):
    """``<`` and ``>`` stand for the marks of a thought."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        return super().encode(text.replace("</think>", ">").replace("<think>", "<"), special=special)


def remembering(folder: Path, song: bytes = SONG) -> Engine:
    target = ToyBackend(scripted(song), vocabulary=Thinking())
    memory = Memory(folder, "toy", target.vocabulary.piece)
    return Engine(target, learning=Learning(target, memory=memory))


def drafted(engine: Engine, text: str, **options: object) -> int:
    """Tokens that the memory drafted in a request."""
    values = {"temperature": 0.0, "proposer": "memory", "k": 4} | options
    return engine.generate(text, **values).finish().stats.drafted


def test_what_a_request_said_is_remembered_for_the_next(tmp_path: Path) -> None:
    engine = remembering(tmp_path)
    assert drafted(engine, "la la la li") == 0
    assert drafted(engine, "la la la li") > 10
    engine.close()
    again = remembering(tmp_path)
    assert drafted(again, "la la la li") > 10
    again.close()


def tokens_in(memory: Memory) -> int:
    """Tokens that the user-wide table has learnt, each with an n-gram of every order."""
    inserted: int = sum(NUMBER.unpack_from(table._map, INSERTED_AT)[0] for table in memory.tables(None))
    return inserted // len(ORDERS)


def learnt_of(folder: Path, *texts: str) -> int:
    """Tokens that an engine learns of a chat's newest turn; all ``texts`` but the last have answers."""
    target = ToyBackend(small_markov(3))
    memory = Memory(folder, "toy", target.vocabulary.piece)
    engine = Engine(target, learning=Learning(target, memory=memory))
    before = tokens_in(memory)
    turns = [each for text in texts for each in (Message("user", text), Message("assistant", "yes"))]
    options, prompt = Options(temperature=0.0, max_tokens=20), ChatPrompt(tuple(turns[:-1]))
    run_all(engine, [engine.submit(Request(prompt=prompt, options=options, source="chat:1"))])
    rested(engine)
    learnt = tokens_in(memory) - before
    engine.close()
    return learnt


def test_of_a_chat_each_turn_is_learnt_once(tmp_path: Path) -> None:
    """Not again with the next one, nor after a restart."""
    first, second = "one two three " * 20, "four five six"
    assert learnt_of(tmp_path, first) > len(first)
    assert len(second) < learnt_of(tmp_path, first, second) < len(first) / 2
    assert len(second) < learnt_of(tmp_path, first, second, "seven") < len(first) / 2


def test_what_is_not_to_be_remembered_is_not(tmp_path: Path) -> None:
    engine = remembering(tmp_path)
    for _ in range(3):
        assert drafted(engine, "la la la li", remember=False) == 0
    engine.close()
    assert not list(tmp_path.rglob("*.ngm"))


@pytest.mark.parametrize(("end", "learns"), [(b"", False), (b">", True)])
def test_thoughts_are_not_remembered(tmp_path: Path, end: bytes, learns: bool) -> None:
    engine = remembering(tmp_path, b"la <one two three four five" + end + b"six seven eight nine")
    assert drafted(engine, "la <") == 0
    assert (drafted(engine, "la <") > 0) == learns
    engine.close()


def test_workspaces_do_not_see_each_other(tmp_path: Path) -> None:
    engine = remembering(tmp_path)
    drafted(engine, "la la la li", workspace="/one")
    assert drafted(engine, "la la la li", workspace="/two") == 0
    assert drafted(engine, "la la la li", workspace="/one") > 10
    engine.close()


def test_a_busy_engine_learns_when_it_is_idle(tmp_path: Path) -> None:
    engine = remembering(tmp_path)
    sequence = engine.submit(request("la la la li", temperature=0.0))
    run_all(engine, [sequence])
    assert engine.learning.memory is not None
    assert not engine.learning.memory.tables(None)
    rested(engine)
    assert engine.learning.memory.tables(None)
    engine.close()


def test_time_saved_is_given_once_a_plain_step_is_known_and_above_noise() -> None:
    engine = engine_with(None)
    assert engine.generate("abcab", temperature=0.0, max_tokens=1).finish().stats.time_saved_s is None
    stats = engine.generate("abcabcabc", temperature=0.0, max_tokens=40).finish().stats
    assert sum(stats.choices.values()) == stats.rounds
    for priced, noise_s, saved in ((True, 0.1, 1.0), (True, 2.0, None), (False, 0.1, None)):
        account = Account(Stats(rounds=1), reproducible=True)
        account.count_time(won_s=1.0, forward_s=1.0, plain_s=2.0, spent_s=1.0, noise_s=noise_s)
        assert account.close(4, priced=priced).time_saved_s == saved


def test_a_processor_whose_name_no_file_tells(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Some CPU\n")
    assert processor_name(tmp_path / "cpuinfo") == "Some CPU"
    assert processor_name(tmp_path / "none")
    assert processor_name(tmp_path)  # what cannot be read


def measured(widths: dict[int, float]) -> CostCurve:
    costs = CostCurve()
    for width, seconds in widths.items():
        for _ in range(3):
            costs.observe(width, 512, seconds)
    return costs


def shown(*, right: bool) -> Survival:
    """Many requests whose drafts were all right, or all wrong."""
    ahead = Calibration().by_position("draft")
    for number in range(100):
        for position in range(4):
            ahead.learn(number, position, right=right)
        ahead.stop(number)
    return ahead


CHEAP, DEAR = {1: 0.010, 2: 0.0105, 4: 0.011, 8: 0.012}, {1: 0.010, 2: 0.024, 4: 0.040, 8: 0.080}


@pytest.mark.parametrize(
    ("costs", "step_s", "right", "pays"),
    [
        (CHEAP, 0.001, True, True),
        (CHEAP, 0.001, False, False),
        (DEAR, 0.001, True, False),
        (CHEAP, 0.030, True, False),
    ],
)
def test_what_a_draft_is_worth_follows_from_costs_and_from_how_often_it_was_right(
    costs: dict[int, float], step_s: float, right: bool, pays: bool
) -> None:
    pair = KnownPair(measured(costs), measured({1: step_s}), shown(right=right))
    pair.count(400, 400 if right else 0)
    pair.state()
    assert pair.tried.wins == pays and pair.tried.loses != pays
    assert pair.tried.gain is not None and (pair.tried.gain > 1.5) == pays


def test_without_measured_costs_nothing_is_said_of_a_drafts_worth() -> None:
    known, unknown = measured(CHEAP), CostCurve()
    for costs, draft_costs in ((unknown, known), (known, unknown), (measured({1: 0.01}), known)):
        pair = KnownPair(costs, draft_costs, shown(right=False))
        pair.count(400, 0)
        pair.state()
        assert pair.tried == PairResults(400, 0, None)


def test_the_drafts_of_all_requests_are_counted_and_kept(tmp_path: Path) -> None:
    paths = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    for path in paths:
        path.touch()
    stats = Stats(proposers={"draft": ProposerStats(10, 4), "memory": ProposerStats(9, 9)})
    for times in (1, 2):
        target, draft = ToyBackend(markov()), ToyBackend(markov())
        learning = Learning(target, directory=tmp_path, model=model_at(paths[0]))
        pair = learning.know_draft(draft, model_at(paths[1])).pair
        learning.count(stats, draft)
        learning.count(Stats(), draft)
        learning.count(stats, None)
        learning.close()
        assert pair is not None and pair.tried[:2] == (10 * times, 4 * times)


def test_costs_and_drafts_of_other_nodes_are_others(tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.touch()
    model = model_at(path)
    for seconds, nodes in enumerate(((), ("mac-b",), ("mac-b", "mac-c")), 1):
        learning = Learning(ToyBackend(markov()), directory=tmp_path, model=model, nodes=nodes)
        pair = learning.know_draft(ToyBackend(markov()), model).pair
        assert pair is not None and not learning.costs.list_measured() and pair.tried == PairResults()
        learning.costs.observe(1, 0, seconds)
        pair.count(400, 100 * seconds)
        learning.close()


def test_on_another_placement_drafts_are_as_long_as_its_own_costs_make_them(tmp_path: Path) -> None:
    (tmp_path / "any.gguf").touch()

    def on(layers: int) -> Learning:
        target = ToyBackend(markov())
        target.description = f"toy, {layers} layers on the GPU"
        return Learning(target, directory=tmp_path, model=model_at(tmp_path / "any.gguf"))

    def first_draft(learning: Learning) -> int:
        controller = Controller([Coin(TRUTH, 1.0)], learning.costs, learning.calibration)
        return len(controller.propose([ask(TRUTH[:5], 20)])[0].tokens)

    half, less = on(15), on(14)
    for width in [*range(1, 22)] * 3:
        half.costs.observe(width, 0, 1.0 + 0.02 * width)
        less.costs.observe(width, 0, 0.6 + 0.4 * width)
    less.save()
    for number in range(20):
        controller = Controller([Coin(TRUTH, 1.0)], half.costs, half.calibration)
        play(controller, half.costs, rounds=20, request=number)
    half.save()
    # On 14 layers with the evidence of 15, and then without.
    assert first_draft(on(15)) == 20 > first_draft(on(14)) > first_draft(less) > 0
    assert 0 < first_draft(on(13)) <= CAUTIOUS_K


def test_costs_over_nodes_are_measured_again_after_each_load() -> None:
    target = ToyBackend(small_markov(3))
    learning = Learning(target, nodes=("mac-b",))
    for width in (*range(1, 9), 16, 21) * 8:
        learning.costs.observe(width, 0, 100.0 * width)
    learning.rounding.measured = PRESUMED
    with Engine(target, learning=learning) as engine:
        rested(engine)
        assert max(learning.costs.list_measured().values()) < 100.0
