"""The special workloads on toy models: their cases, and what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assets.bench.acceptance.restart import MEMORY, filled_memories, measure_restart, memory_share
from assets.bench.acceptance.sweep import chosen_for_sweep, sweep_contestants
from assets.bench.acceptance.two_up import Arrivals, measure_two_up, play_together
from assets.bench.acceptance.workloads import SPECIAL, load_special
from localspec.backends.toy import ToyBackend
from localspec.bench.contestant import own_contestants
from localspec.bench.measure import Script, play_script, record
from localspec.bench.results import PLAIN, Contestant
from localspec.bench.stand import Stand
from localspec.bench.workload import Case, Turn, load_workload, quick
from localspec.engine.engine import Engine
from localspec.engine.events import RoundPlayed
from localspec.memory.upkeep import stats
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, TextPrompt
from tests.bench.documents import run
from tests.toys import request, scripted, small_markov

LOOKUP = Contestant("prompt-lookup", "prompt-lookup")


def silent(what: str, fraction: float) -> None:
    assert 0 <= fraction <= 1


@pytest.fixture
def stand() -> Iterator[Stand]:
    target, draft = ToyBackend(small_markov(3, sharpness=3.0)), ToyBackend(small_markov(3, order=1))
    yield Stand(target, {"draft": draft}, EngineConfig())
    assert target.open_sequences == draft.open_sequences == 0


# Cases.


def test_a_derived_workload_has_the_cases_of_its_sources_in_turns() -> None:
    two_up = load_special("two-up")
    assert {case.workload for case in two_up} == {"two-up"}
    assert [case.name.partition("-")[0] for case in two_up[:4]] == ["chat", "fim", "chat", "fim"]
    assert len(two_up) == len(load_workload("chat")) + len(load_workload("fim"))
    restart = [case.turns for case in load_special("warm-restart")]
    assert restart == [case.turns for case in load_workload("edit-long")]


@pytest.mark.parametrize("name", SPECIAL)
def test_quick_takes_two_turns(name: str) -> None:
    cases = quick(load_special(name))
    assert sum(len(case.turns) for case in cases) == 2
    assert cases[0].turns[0] == load_special(name)[0].turns[0]


# The sweep.


def test_the_sweep_has_every_length() -> None:
    found = sweep_contestants(["draft"])
    assert [c.k for c in found if c.proposer == "memory"] == [2, 4, 6, 8]
    assert {c.ngram for c in found if c.proposer == "prompt-lookup"} == {3}
    assert not [c for c in sweep_contestants([]) if c.proposer == "draft"]


def test_the_sweep_is_of_those_who_take_part() -> None:
    own = own_contestants(["draft"])
    names = {c.name for c in chosen_for_sweep(["draft"], [own[0], own[4]])}
    assert names == {PLAIN, "memory k=2", "memory k=4", "memory k=6", "memory k=8"}


# Two at once, and a restart.


def two_up_cases() -> list[Case]:
    options = Options(max_tokens=12, temperature=0)
    chats = [Turn(prompt=TextPrompt(text), options=options) for text in ("abcabc", "fedfed")]
    gaps = [Turn(prompt=FimPrompt("abcd" * n, "dcba"), options=options) for n in (1, 2, 3)]
    return [Case("two-up", str(i), (turn,)) for i, turn in enumerate([*chats, *gaps])]


def test_completions_arrive_while_chats_stream(stand: Stand) -> None:
    found = measure_two_up(stand, two_up_cases(), Contestant("auto", "auto", draft="draft"), silent)
    assert found.completions == 3
    assert found.share == pytest.approx(1 / 3)
    assert min(found.completion_s, found.completion_alone_s, found.chat_s_per_token) > 0


def test_chats_begin_again_as_long_as_completions_come(stand: Stand) -> None:
    chat = request("abc", max_tokens=6, temperature=0)
    gap = request("abcd", max_tokens=30, temperature=0)
    with stand.engine(LOOKUP) as engine:
        together = play_together(engine, Arrivals([chat], [gap] * 9, 0.0))
    assert len(together.completions) == 9
    assert together.chat_tokens > 6
    assert together.chat_s > 0


def restart_scripts(stand: Stand) -> list[Script]:
    options = Options(max_tokens=40, temperature=0.0)
    turns = tuple(Turn(prompt=TextPrompt(text), options=options) for text in ("abcabc", "abcabca"))
    return record(stand, [Case("warm-restart", "long", turns)])


def test_a_restart_is_measured_with_every_state_of_the_memory(stand: Stand) -> None:
    found = list(measure_restart(stand, restart_scripts(stand), 2, silent))
    assert [(r.memory, r.repeat) for r in found] == [
        (state, repeat) for repeat in (0, 1) for state in ("empty", "kept", "other")
    ]
    kept, empty = ([r.share for r in found if r.memory == state] for state in ("kept", "empty"))
    assert min(kept) > max(empty)


def test_without_a_draft_model_nobody_else_fills_the_memory() -> None:
    alone = Stand(ToyBackend(small_markov(3)), {}, EngineConfig())
    states = {r.memory for r in measure_restart(alone, restart_scripts(alone), 1, silent)}
    assert states == {"empty", "kept"}


def test_the_share_from_memory_is_of_all_tokens() -> None:
    runs = [run(tokens=10, sources={"memory": 4, "prompt-lookup": 2}), run(tokens=10)]
    assert memory_share(runs) == 0.2
    assert memory_share([]) == 0.0


def test_a_memory_is_filled_for_each_case_by_both_models(stand: Stand, tmp_path: Path) -> None:
    options = Options(max_tokens=30, temperature=0.0)
    cases = [
        Case("edit-long", name, (Turn(prompt=TextPrompt(name * 3), options=options),))
        for name in ("abc", "fed")
    ]
    with filled_memories(stand, record(stand, cases)) as memories:
        places = [place for memory in memories for place in memory]
        assert len(set(places)) == 4
        for place in places:
            assert place is not None
            (table,) = stats(place, lambda notice: None)
            assert table.workspace is None and table.entries > 0
    assert not any(place.exists() for place in places if place)


def test_a_restart_with_an_empty_memory_is_a_first_run(stand: Stand) -> None:
    """The timed part is a contestant's run with the memory that it finds, alone."""
    options = Options(max_tokens=40, temperature=0.0)
    turns = tuple(Turn(prompt=TextPrompt(text), options=options) for text in ("abcabc", "abcabca"))
    (script,) = record(stand, [Case("edit-long", "one", turns)])
    plain = list(play_script(stand, script, MEMORY))
    (empty, kept, _) = measure_restart(stand, [script], 1, lambda what, fraction: None)
    tokens = sum(r.completion_tokens for r in plain)
    assert empty.share == pytest.approx(sum(r.sources.get("memory", 0) for r in plain) / tokens)
    first = plain[0]
    assert empty.first_turn_share == pytest.approx(first.sources.get("memory", 0) / first.completion_tokens)
    assert kept.first_turn_share > empty.first_turn_share and kept.s_per_token > 0


def test_chats_beside_completions_are_counted_from_their_first_token_on() -> None:
    """The step that computes a chat's prompt is neither in its tokens nor in its time."""
    stand = Stand(ToyBackend(scripted(b"abcdef" * 9, b"uvwxyz" * 9)), {}, EngineConfig())
    chat = request("uvw", max_tokens=6, temperature=0.0, proposer="none")
    gap = request("abc", max_tokens=9, temperature=0.0, proposer="none")
    rounds: list[RoundPlayed] = []
    with stand.engine(Contestant("none")) as engine:
        engine.on_round = rounds.append
        together = play_together(engine, Arrivals([chat], [gap] * 20, 0.0))
        assert not engine.step()
    assert len(together.completions) == 20 and min(together.completions) > 0
    streamed = [played for played in rounds if min(played.chosen) >= ord("u")]
    assert len({played.request for played in streamed}) > 2
    assert together.chat_tokens == sum(played.emitted for played in streamed)
    assert together.chat_s > 0


class Watched(Stand):
    """Looks into the memory that an engine leaves behind."""

    def __init__(self, target: ToyBackend) -> None:
        super().__init__(target, {}, EngineConfig())
        self.left: list[list[Path]] = []

    @contextmanager
    def engine(self, contestant: Contestant, memory: Path | None = None) -> Iterator[Engine]:
        with super().engine(contestant, memory) as engine:
            yield engine
        assert memory is not None
        self.left.append(list(memory.rglob("*.ngm")))


def test_two_at_once_learns_nothing_that_would_come_around_again() -> None:
    """A memory that knew the chat by heart would make it fast."""
    options = Options(max_tokens=24, temperature=0.0)
    chat = Case("two-up", "chat", (Turn(prompt=TextPrompt("abcabc"), options=options),))
    gap = Case("two-up", "gap", (Turn(prompt=FimPrompt("abcd", "dcba"), options=options),))
    told: list[str] = []
    stand = Watched(ToyBackend(small_markov(3, sharpness=3.0)))
    found = measure_two_up(stand, [chat, gap], MEMORY, lambda what, fraction: told.append(what))
    assert told == ["two-up: alone", "two-up: together"]
    assert (found.contestant, found.completions) == ("memory", 1)
    assert stand.left == [[], [], []]
