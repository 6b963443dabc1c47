"""The references as contestants, and the stand they share with ours, on toy models: in no time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from localspec.backends.base import Span
from localspec.backends.toy import END, ToyBackend, ToyLogits, ToyVocabulary
from localspec.bench.log import Log
from localspec.bench.measure import Step, text_hash
from localspec.bench.references import Answer, Question
from localspec.bench.results import Contestant, Run
from localspec.bench.rivals import Player, Rival, opened, worth_repeating
from localspec.bench.stand import TARGET, Lent, Stand, answer
from localspec.errors import ContextExceeded, EngineError
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt
from tests.bench.documents import run
from tests.toys import request, small_markov

N_CTX = 32


class Told:
    """A reference that answers with texts of the test, and keeps the prompts that it got."""

    name = "told"

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[Question] = []
        self.closed = 0

    def fresh(self) -> None:
        pass

    def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        return self._answers.pop(0)

    def close(self) -> None:
        self.closed += 1


def said(tokens: int, *, decoded: int, decode_s: float = 2.0) -> Answer:
    return Answer("x" * tokens, (120,) * tokens, ttft_s=0.5, decode_s=decode_s, decoded=decoded)


def step(prompt: str, *, turn: int = 0, **options: object) -> Step:
    asked = Request(prompt=TextPrompt(prompt), options=Options(**options))  # type: ignore[arg-type]
    return Step(asked, Log("chat", "one", turn, list(prompt.encode()), [120]))


def play(reference: Told, *steps: Step, n_ctx: int = N_CTX) -> list[Run]:
    return list(Player(reference, ToyVocabulary(), n_ctx).play(steps))


# Players.


def test_a_turn_of_a_reference_is_a_run_of_that_turn() -> None:
    told = Told(said(5, decoded=4), said(3, decoded=2))
    runs = play(told, step("abc", temperature=0.0), step("abcdef", turn=1, temperature=0.0))
    assert [(r.workload, r.case, r.turn) for r in runs] == [("chat", "one", 0), ("chat", "one", 1)]
    assert [(r.prompt_tokens, r.completion_tokens) for r in runs] == [(3, 5), (6, 3)]
    assert [r.text_hash for r in runs] == [text_hash("xxxxx"), text_hash("xxx")]
    assert [(r.ttft_s, r.decode_s, r.total_s) for r in runs] == [(0.5, 2.0, 2.5)] * 2
    assert all(r.exact and r.tokens_per_s == (r.completion_tokens - 1) / 2.0 for r in runs)
    assert told.asked[0].end_tokens == {END}


@pytest.mark.parametrize(
    ("tokens", "decoded", "seconds"),
    [
        (5, 5, 1.6),  # the end token was counted: four fifths of the time are the answer's
        (1, 1, 0.0),  # an answer of one token has no speed, whatever was spent on its end
        (1, 0, 0.0),
        (0, 0, 0.0),
    ],
)
def test_time_for_tokens_that_ours_do_not_count_is_left_out(
    tokens: int, decoded: int, seconds: float
) -> None:
    (found,) = play(Told(said(tokens, decoded=decoded)), step("abc"))
    assert found.decode_s == pytest.approx(seconds)
    assert found.total_s == 2.5 and (found.tokens_per_s is None) == (seconds == 0)


@pytest.mark.parametrize(
    ("wanted", "asked"), [(4, 4), (N_CTX - 3, N_CTX - 3), (N_CTX, N_CTX - 3), (None, 29)]
)
def test_no_more_is_asked_for_than_there_is_room(wanted: int | None, asked: int) -> None:
    told = Told(said(1, decoded=0))
    play(told, step("abc", max_tokens=wanted))
    assert told.asked[0].max_tokens == asked


def test_a_sample_is_asked_for_as_such() -> None:
    told = Told(said(2, decoded=1))
    (found,) = play(told, step("abc", temperature=0.8, seed=5))
    assert (told.asked[0].temperature, told.asked[0].seed, found.exact) == (0.8, 5, False)


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    with pytest.raises(ContextExceeded):
        play(Told(), step("x" * (N_CTX + 1)))


def rival(name: str, reference: Told | None, kind: str | None = None, *, default: bool = False) -> Rival:
    def start() -> Told:
        if reference is None:
            raise EngineError("it does not start")
        return reference

    return Rival(Contestant(name, kind or name, reference=True), start, kind, default)


def test_all_are_closed_whatever_happens() -> None:
    one, two = Told(), Told()
    with (
        pytest.raises(KeyError),
        opened([rival("1", one), rival("2", two)], ToyVocabulary(), N_CTX, {}) as players,
    ):
        assert list(players) == ["1", "2"] and one.closed == two.closed == 0
        players["3"]
    assert one.closed == two.closed == 1


def test_who_does_not_start_is_left_out() -> None:
    one, three, failures = Told(), Told(), dict[str, str]()
    rivals = [rival("1", one), rival("2", None), rival("3", three)]
    with opened(rivals, ToyVocabulary(), N_CTX, failures) as players:
        assert list(players) == ["1", "3"]
    assert failures == {"2": "it does not start"}
    assert one.closed == three.closed == 1


def kept(rivals: list[Rival], runs: list[Run]) -> list[str]:
    return [each.contestant.name for each in worth_repeating(iter(rivals), runs)]


def test_of_settings_that_were_not_measured_the_first_goes_on() -> None:
    rivals = [rival(f"mod {i}", None, "mod", default=i == 1) for i in (1, 2, 3)]
    assert kept(rivals, []) == ["mod 1"]
    assert kept(rivals, [run("mod 3", decode_s=9.0)]) == ["mod 1", "mod 3"]


def test_the_fastest_setting_has_the_most_tokens_in_its_time() -> None:
    """Over all cases together, and only its own runs."""
    rivals = [rival(name, None, "mod") for name in ("a", "b")]
    runs = [run("a", tokens=101, decode_s=1.0), run("a", case="2", tokens=11, decode_s=4.0)]
    runs += [run("b", tokens=101, decode_s=2.0), run("b", case="2", tokens=11, decode_s=0.5)]
    assert kept(rivals, [*runs, run("somebody else", decode_s=0.001)]) == ["b"]


# The stand.


@pytest.fixture
def stand() -> Iterator[Stand]:
    target, draft = ToyBackend(small_markov(3, sharpness=3.0)), ToyBackend(small_markov(3, order=1))
    yield Stand(target, {"draft": draft}, EngineConfig())
    assert target.open_sequences == draft.open_sequences == 0


def test_what_forwards_cost_is_measured_once_and_known_to_every_engine(stand: Stand) -> None:
    told: list[str] = []
    stand.measure_costs(lambda what, fraction: told.append(what))
    assert told == ["cost of a forward: target", "cost of a forward: draft"]
    for _ in range(2):
        with stand.engine(Contestant("auto", "auto", draft="draft")) as engine:
            learning = engine.learning
            assert learning.costs.line(300) == stand.costs[TARGET].line(300)
            assert learning.draft_costs is not None
            assert learning.draft_costs.line(300) == stand.costs["draft"].line(300)
            learning.costs.observe(1, 300, 9.0)
    assert stand.costs[TARGET].seconds(1, 300) < 1.0


def test_an_engine_has_the_draft_model_of_its_contestant(stand: Stand) -> None:
    with stand.engine(Contestant("memory", "memory")) as engine:
        assert engine.draft is None and engine.learning.memory is None
    with stand.engine(Contestant("x", "draft", draft="draft")) as engine:
        assert isinstance(engine.draft, Lent) and isinstance(engine.target, Lent)


def test_forwards_that_are_lent_are_timed(stand: Stand) -> None:
    lent = Lent(stand.target)
    sequence = lent.open()
    assert lent.spent_s == 0.0
    lent.forward([Span(sequence, [97], 1)])
    once = lent.spent_s
    lent.forward([Span(sequence, [98], 1)])
    assert lent.spent_s > once > 0
    lent.free()


def test_sums_over_rounds_are_without_the_first_and_without_the_draft_model(stand: Stand) -> None:
    asked = request("abcabc", max_tokens=30, temperature=0.0, proposer="draft", k=2)
    with stand.engine(Contestant("draft", "draft", draft="draft")) as engine:
        found = answer(engine, asked)
        rounds, target, draft = found.watched.rounds, engine.target, engine.draft
        assert isinstance(target, Lent) and isinstance(draft, Lent)
        assert 0 < found.watched.forward_s < target.spent_s
        later = sum(played.ms for played in rounds[1:]) / 1000
        assert later - draft.spent_s <= found.watched.round_s < later
    assert (found.prompt, len(found.output)) == (list(b"abcabc"), found.result.completion_tokens)


def test_what_the_prompts_forward_falls_into_is_not_counted(stand: Stand) -> None:
    with stand.engine(Contestant("prompt-lookup", "prompt-lookup")) as engine:
        found = answer(engine, request("abcabc", max_tokens=30, temperature=0.0, proposer="prompt-lookup"))
    first, *others = (played.ms / 1000 for played in found.watched.rounds)
    assert first > 0 and found.watched.round_s == pytest.approx(sum(others))


def test_the_error_that_ends_a_request_ends_the_benchmark(stand: Stand) -> None:
    class Failing(ToyBackend):
        def forward(self, batch: Sequence[Span]) -> ToyLogits:
            raise EngineError("device lost")

    broken = Stand(Failing(), {}, EngineConfig())
    with broken.engine(Contestant("none")) as engine, pytest.raises(EngineError, match="device lost"):
        answer(engine, request("abc"))
