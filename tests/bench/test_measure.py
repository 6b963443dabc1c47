"""The runner on toy models: all contestants get the same prompts, in turns, and start with nothing learnt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.backends.base import Span
from localspec.backends.toy import ToyBackend
from localspec.bench.contestant import own_contestants
from localspec.bench.figures import figures_of
from localspec.bench.measure import (
    Clock,
    Plan,
    Step,
    TimeLeft,
    in_time,
    measure,
    play_script,
    record,
    survival,
    turn_teller,
)
from localspec.bench.results import PLAIN, Contestant, Run
from localspec.bench.scratch import scratch_memory, scratch_root
from localspec.bench.stand import Lent, Stand, answer, load_stand, model_facts
from localspec.bench.workload import Case, Turn
from localspec.engine.events import RoundPlayed
from localspec.errors import EngineCrashed, ModelNotFound, TokenizerMismatch
from localspec.models.bundled import bundled_model
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, TextPrompt
from tests.bench.documents import document, run
from tests.toys import request, small_markov

ALL = own_contestants(["draft"])
FIXED = [
    Contestant("lookup k=4", "prompt-lookup", 4),
    Contestant("memory k=4", "memory", 4),
    Contestant("draft k=4", "draft", 4, draft="draft"),
]
LOOKUP = Contestant("prompt-lookup", "prompt-lookup")


def silent(what: str, fraction: float) -> None:
    assert 0 <= fraction <= 1


@contextmanager
def standing() -> Iterator[Stand]:
    target, draft = ToyBackend(small_markov(3, sharpness=3.0)), ToyBackend(small_markov(3, order=1))
    made = Stand(target, {"draft": draft}, EngineConfig())
    yield made
    for backend in (target, draft):  # nothing is left open
        assert len({backend.open() for _ in range(8)}) == 8


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as made:
        yield made


def case(name: str, *prompts: str, workload: str = "edit-short", temperature: float = 0.0) -> Case:
    options = Options(max_tokens=40, temperature=temperature)
    turns = tuple(Turn(prompt=TextPrompt(prompt), options=options) for prompt in prompts)
    return Case(workload, name, turns)


CASES = (case("one", "abcabc", "abcabcd"), case("two", "fedfed"))


def runs_of(stand: Stand, plan: Plan) -> list[Run]:
    return list(measure(stand, plan, {}, silent))


def plan_of(stand: Stand, *, runs: int = 2, contestants: list[Contestant] = ALL) -> Plan:
    return Plan(record(stand, CASES), lambda workload, repeat: contestants, runs, Clock(None), {})


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Everybody's, twice."""
    with standing() as stand:
        return runs_of(stand, plan_of(stand))


@pytest.mark.slow
def test_everybody_answers_every_turn_in_every_repeat(runs: list[Run]) -> None:
    assert len(runs) == 3 * len(ALL) * 2
    assert {(r.case, r.turn, r.contestant, r.repeat) for r in runs} == {
        (name, turn, c.name, repeat)
        for name, turn in (("one", 0), ("one", 1), ("two", 0))
        for c in ALL
        for repeat in (0, 1)
    }


def test_contestants_take_turns_and_another_one_begins_each_time(runs: list[Run]) -> None:
    order = [r.contestant for r in runs if (r.case, r.turn) == ("one", 0)]
    names = [c.name for c in ALL]
    assert order == names + names[1:] + names[:1]


def test_greedy_texts_are_all_the_same(runs: list[Run]) -> None:
    assert all(figure.diverged == 0 for figure in figures_of(document(runs, contestants=ALL)))
    assert any(r.accepted for r in runs)
    assert all(r.exact for r in runs)


@pytest.mark.slow
def test_repeats_find_nothing_of_earlier_ones(stand: Stand) -> None:
    """Drafted, accepted and cached tokens are the same in every repeat."""
    runs = runs_of(stand, plan_of(stand, runs=3, contestants=[ALL[0], *FIXED]))
    counts: dict[object, set[tuple[object, ...]]] = {}
    for r in runs:
        key = (r.request, r.contestant)
        counts.setdefault(key, set()).add((r.rounds, r.drafted, r.accepted, r.prompt_tokens))
    assert all(len(found) == 1 for found in counts.values())


def test_the_next_turn_follows_from_the_plain_answer(stand: Stand) -> None:
    whole = Case(
        "edit-short",
        "long",
        (
            Turn(prompt=ChatPrompt((Message("user", "abc"),)), options=Options(max_tokens=20, temperature=0)),
            Turn(
                prompt=ChatPrompt((Message("user", "{code}"),)),
                options=Options(max_tokens=20, temperature=0),
                code="aaaa",
            ),
        ),
    )
    (script,) = record(stand, [whole])
    assert "aaaa" in bytes(t for t in script.steps[1].log.prompt if t < 256).decode()


def test_a_sampled_answer_is_not_compared(stand: Stand) -> None:
    (script,) = record(stand, [case("warm", "abc", temperature=1.0)])
    (played,) = play_script(stand, script, LOOKUP)
    assert not played.exact


def test_a_run_has_all_its_figures(stand: Stand) -> None:
    (script,) = record(stand, [case("one", "abcabcabc")])
    (played,) = play_script(stand, script, LOOKUP)
    assert played.total_s > played.decode_s > 0
    assert played.ttft_s is not None
    assert played.cpu_s is not None and played.cpu_s > 0
    assert played.rounds is not None and played.drafted is not None and played.accepted is not None
    assert played.completion_tokens == len(script.steps[0].log.output)
    assert sum(played.sources.values()) == played.accepted
    assert sum(right for counts in played.survival.values() for _, right in counts) == played.accepted
    assert 0 < played.forward_s < played.round_s


def test_time_that_is_up_ends_it_when_every_workload_had_its_first_case(stand: Stand) -> None:
    cases = [*CASES, case("talk", "abc", workload="chat"), case("more", "fed", workload="chat")]
    late = Plan(record(stand, cases), lambda workload, repeat: ALL[:2], 3, Clock(0.0), {})
    told: list[float] = []
    runs = list(measure(stand, late, {}, lambda what, fraction: told.append(fraction)))
    assert {(run.workload, run.case) for run in runs} == {("edit-short", "one"), ("chat", "talk")}
    assert {run.repeat for run in runs} == {0}
    assert told == [0.0, 0.25, 0.5, 0.75]


def test_workloads_take_turns_and_nothing_is_left_out_while_there_is_time() -> None:
    cases = [case(name, "abc", workload=workload) for workload in ("fim", "chat") for name in "123"]
    cases.append(case("1", "abc", workload="story"))
    found = [(each.workload, each.name) for each in in_time(cases, Clock(None))]
    assert found[:4] == [("fim", "1"), ("chat", "1"), ("story", "1"), ("fim", "2")]
    assert len(found) == len(cases)
    assert list(in_time(cases, Clock(0.0), at_least_one=False)) == []


def test_a_run_with_all_the_time_is_as_far_as_its_cases_are(stand: Stand) -> None:
    told: list[float] = []
    plan = plan_of(stand, contestants=ALL[:2])
    assert list(measure(stand, plan, {}, lambda what, fraction: told.append(fraction)))
    assert told == [i / 8 for i in range(8)]


def test_the_time_that_is_left_is_known_from_the_stage_itself() -> None:
    left = TimeLeft()
    assert left(0.5, now=100.0) is None
    assert left(0.75, now=160.0) == pytest.approx(60.0)
    assert left(0.0, now=161.0) is None  # another stage
    assert left(0.1, now=162.0) == pytest.approx(9.0)


def test_recording_tells_every_turn(stand: Stand) -> None:
    told: list[tuple[str, float]] = []
    cases = (*CASES, case("three", "abc", workload="chat"))
    record(stand, cases, turn_teller(cases, lambda what, fraction: told.append((what, fraction))))
    assert told == [
        ("recording edit-short: 1 of 3", 0.0),
        ("recording edit-short: 2 of 3", 0.25),
        ("recording edit-short: 3 of 3", 0.5),
        ("recording chat: 1 of 1", 0.75),
    ]


class Parrot:
    """A guest that answers in no time."""

    def play(self, steps: Sequence[Step]) -> Iterator[Run]:
        yield from (run("anybody", case=step.log.case, decode_s=0.001) for step in steps)


def test_guests_take_their_turns_like_everybody(stand: Stand) -> None:
    parrot = Contestant("parrot", "parrot", reference=True)
    plan = plan_of(stand, runs=1, contestants=[ALL[0], parrot])
    runs = list(measure(stand, plan, {"parrot": Parrot()}, silent))
    assert [r.contestant for r in runs] == [PLAIN, PLAIN, "parrot", "parrot", PLAIN, "parrot"]


def test_who_goes_on_is_asked_when_a_repeat_begins(stand: Stand) -> None:
    scripts = record(stand, CASES[1:])
    plan = Plan(scripts, lambda workload, repeat: ALL[: 3 - repeat], 2, Clock(None), {})
    assert [r.contestant for r in runs_of(stand, plan)] == ["none", "none (again)", "auto"] + [
        "none (again)",
        "none",
    ]


# Contestants that fail.


class Mortal:
    """A guest that answers one turn, and dies."""

    def play(self, steps: Sequence[Step]) -> Iterator[Run]:
        yield run("anybody", case=steps[0].log.case, decode_s=0.001)
        raise EngineCrashed("llama-server does not answer: ended with code 3;\nout of memory")


def test_who_fails_takes_no_further_part_and_the_others_go_on(stand: Stand) -> None:
    server = Contestant("server", "ngram-simple", reference=True)
    plan = plan_of(stand, contestants=[ALL[0], server, LOOKUP])
    runs = list(measure(stand, plan, {"server": Mortal()}, silent))
    assert [(r.case, r.repeat) for r in runs if r.contestant == "server"] == [("one", 0)]
    assert {(r.case, r.repeat) for r in runs if r.contestant == "prompt-lookup"} == {
        (name, repeat) for name in ("one", "two") for repeat in (0, 1)
    }
    assert plan.failures == {
        "server": "llama-server does not answer: ended with code 3; out of memory",
    }


def test_one_of_ours_may_fail_too_but_not_plain_decoding(stand: Stand) -> None:
    """Its draft model is not there."""
    plan = plan_of(stand, contestants=[ALL[0], Contestant("draft", "draft", draft="nobody")])
    runs = list(measure(stand, plan, {}, silent))
    assert {r.contestant for r in runs} == {PLAIN}
    assert plan.failures == {"draft": "KeyError: 'nobody'"}
    alone = plan_of(stand, contestants=[Contestant(PLAIN, draft="nobody")])
    with pytest.raises(KeyError):
        list(measure(stand, alone, {}, silent))


# What happened in the rounds.


def played(proposer: str, proposed: int, accepted: int) -> RoundPlayed:
    return RoundPlayed(1, 1, proposer, proposed, (7,) * proposed, (7,) * (accepted + 1), accepted,
                       accepted + 1, 2.0, 0.1, 1.5, proposed + 1)  # fmt: skip


def test_what_stands_behind_a_wrong_token_was_not_judged() -> None:
    rounds = [played("memory", 3, 1), played("memory", 2, 2), played("draft", 1, 0), played("none", 0, 0)]
    assert survival(rounds) == {"memory": [[2, 2], [2, 1]], "draft": [[1, 0]]}


# Models that are lent.


def test_a_lent_model_comes_back_empty() -> None:
    backend = ToyBackend(max_sequences=2)
    for _ in range(3):
        lent = Lent(backend)
        one = lent.open()
        lent.forward([Span(one, [97, 98], 1)])
        lent.truncate(one, 1)
        two = lent.fork(one, 1)
        assert (lent.length(one), lent.length(two)) == (1, 1)
        lent.close(one)
        lent.free()
    assert {backend.open(), backend.open()} == {0, 1}


def test_an_engine_of_the_stand_knows_nothing_of_the_last_one(stand: Stand) -> None:
    asked = request("abc" * 30, max_tokens=4, temperature=0)
    for _ in range(2):
        with stand.engine(LOOKUP) as engine:
            assert answer(engine, asked).result.cached_tokens == 0
            assert answer(engine, asked).result.cached_tokens > 0


def test_lookup_may_be_told_its_only_ngram(stand: Stand) -> None:
    asked = request("abab", max_tokens=8, temperature=0)
    with stand.engine(Contestant("x", "prompt-lookup", ngram=5)) as engine:
        assert answer(engine, asked).prompt == list(b"abab")


def test_a_pair_that_does_not_fit_is_refused_and_freed(tmp_path: Path) -> None:
    target, draft = bundled_model("stdlib-6m"), bundled_model("stdlib-1m")
    other = tmp_path / "other.gguf"
    other.write_bytes(draft.read_bytes().replace("Ġdef".encode(), "Ġdxf".encode(), 1))
    small = EngineConfig(n_ctx=256, parallel=1, threads=1)
    with pytest.raises(TokenizerMismatch):
        load_stand(target, {"draft": other}, small, silent)
    with pytest.raises(ModelNotFound):
        load_stand(tmp_path / "none.gguf", {}, small, silent)


def test_a_model_is_identified_by_its_content() -> None:
    facts = model_facts("target", bundled_model("stdlib-1m"))
    assert (facts.name, facts.quantisation) == ("stdlib-1m", "F16")
    assert len(facts.sha256) == 64
    assert facts.vocab_fp


# Memory's directory.


def test_a_scratch_memory_is_gone_afterwards_and_a_copy_leaves_the_original(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("kept")
    with scratch_memory(tmp_path) as place:
        assert (place / "table").read_text() == "kept"
        (place / "table").write_text("changed")
    assert not place.exists()
    assert place.parent == scratch_root()
    assert (tmp_path / "table").read_text() == "kept"
    with scratch_memory() as empty:
        assert list(empty.iterdir()) == []
