"""The choice of proposer and draft length, and fallbacks, through engines on toy models."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest

from localspec.engine.engine import Engine
from localspec.engine.round import DEFAULT_K, LONGEST_K, PlayedRound, RoundClock
from localspec.engine.sequence import Sequence
from localspec.errors import InvalidOptions
from localspec.protocol.requests import Degraded, EngineConfig, Stats
from localspec.speculation.proposer import Ask, Draft, Proposer
from tests.toy import ToyBackend
from tests.toys import answer, request, run_all, scripted

ROUND = b"abcdefgh" * 40
PROMPT = ROUND[:24].decode()
"""two rounds and a half: lookup is right from the first token on"""


def engine_with(*, proposers: Seq[Proposer] = (), text: bytes = ROUND, **settings: object) -> Engine:
    config = EngineConfig(**settings)  # type: ignore[arg-type]
    return Engine(ToyBackend(scripted(text)), config=config, proposers=proposers)


def stats_of(engine: Engine, prompt: str = PROMPT, **options: object) -> Stats:
    return rounds_of(engine, prompt, **options)[1]


def rounds_of(engine: Engine, prompt: str = PROMPT, **options: object) -> tuple[list[PlayedRound], Stats]:
    """A request's rounds, and its statistics."""
    values: dict[str, object] = {"temperature": 0.0, "max_tokens": 60} | options
    sequence, rounds, end = (
        engine.submit(request(prompt, **values)),
        list[PlayedRound](),
        RoundClock.end_round,
    )

    def note(clock: RoundClock, played: Seq[PlayedRound]) -> None:
        rounds.extend(played)
        end(clock, played)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundClock, "end_round", note)
        run_all(engine, [sequence])
    return rounds, sequence.stats


class Noted(Proposer):
    """A proposer that repeats the text, or errs, and records the outcome."""

    def __init__(self, name: str, *, wrong: bool = False) -> None:
        self.name, self._wrong = name, wrong
        self.asked: list[list[int]] = []
        self.observed: list[tuple[int, int]] = []
        self.stopped: list[int] = []

    def propose(self, asks: Seq[Ask]) -> list[Draft]:
        self.asked.append([ask.k for ask in asks])
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        done = len(ask.context)
        tokens = b"!" * ask.k if self._wrong else ROUND[done : done + ask.k]
        return Draft(tuple(tokens), self.name)

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        self.observed.append((len(draft.tokens), accepted))

    def stop(self, request: int) -> None:
        self.stopped.append(request)


class Broken(Noted):
    def propose(self, asks: Seq[Ask]) -> list[Draft]:
        self.asked.append([ask.k for ask in asks])
        raise RuntimeError("no draft today")


def submitted(engine: Engine, n: int, **options: object) -> list[Sequence]:
    values: dict[str, object] = {"temperature": 0.0, "max_tokens": 30, "proposer": "prompt-lookup", "k": 4}
    return [engine.submit(request(PROMPT, **(values | options))) for _ in range(n)]


def test_a_length_that_was_asked_for_is_the_length() -> None:
    stats = stats_of(engine_with(), proposer="prompt-lookup", k=7)
    assert max(stats.k_histogram) == 7 and stats.k_histogram[7] >= 6


def test_a_proposer_of_ones_own_is_asked_for_a_few_tokens() -> None:
    """No controller chooses its length."""
    mine = Noted("mine")
    stats_of(engine_with(proposers=[mine]), proposer="mine")
    assert {k for ks in mine.asked[:-2] for k in ks} == {DEFAULT_K} and DEFAULT_K < LONGEST_K


def test_lookup_searches_for_the_ngrams_of_the_configuration() -> None:
    """The last letters stand before, but never four of them in this order."""
    text = b"xabc, yabc, zabc."
    for n_min, drafts in ((3, True), (4, False)):
        engine = engine_with(text=text, ngram_min=n_min, ngram_max=n_min)
        stats = stats_of(engine, "xabc, yab", proposer="prompt-lookup", k=2, max_tokens=3)
        assert (stats.drafted > 0) is drafts


def test_an_own_proposer_takes_the_place_of_ours() -> None:
    mine = Noted("prompt-lookup")
    engine = engine_with(proposers=[mine])
    stats = stats_of(engine, proposer="prompt-lookup", k=5)
    assert mine.asked and mine.observed == [(5, 5)] * (len(mine.observed) - 1) + [mine.observed[-1]]
    assert stats.proposers["prompt-lookup"].accepted == sum(right for _, right in mine.observed)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 5}])
def test_padding_widens_forwards_and_changes_no_token(options: dict[str, object]) -> None:
    class Padded(Noted):
        def _draft(self, ask: Ask) -> Draft:
            return replace(super()._draft(ask).cut(1), padding=ask.k - 1)

    texts = []
    for kind in (Noted, Padded):
        engine = engine_with(proposers=[kind("mine")])
        run_all(engine, running := submitted(engine, 1, proposer="mine", **options))
        texts.append(answer(running[0]))
    backend = engine.target
    assert isinstance(backend, ToyBackend) and texts[0] == texts[1]
    assert [len(spans[0].tokens) for spans in backend.forwards if spans[0].rows == 5]


def test_every_proposer_learns_that_a_request_has_ended() -> None:
    """Also proposers that were not used: a degraded request had several proposers."""
    mine, other = Noted("mine"), Noted("other")
    engine = engine_with(proposers=[mine, other])
    sequences = submitted(engine, 2, proposer="mine")
    run_all(engine, sequences)
    for proposer in (mine, other):
        assert sorted(proposer.stopped) == sorted(sequence.id for sequence in sequences)


def test_one_proposer_is_asked_for_all_its_requests_at_once() -> None:
    mine, other = Noted("mine"), Noted("other", wrong=True)
    engine = engine_with(proposers=[mine, other])
    running = submitted(engine, 2, proposer="mine", k=3) + submitted(engine, 1, proposer="other", k=2)
    run_all(engine, running)
    assert [3, 3] in mine.asked and {len(ks) for ks in other.asked} == {1}
    assert [sequence.stats.acceptance_rate for sequence in running] == [1.0, 1.0, 0.0]
    assert not {accepted for _, accepted in other.observed} - {0}


def test_a_failing_proposer_takes_no_other_draft_with_it() -> None:
    mine, broken = Noted("mine"), Broken("broken")
    engine = engine_with(proposers=[mine, broken])
    fine = submitted(engine, 1, proposer="mine")
    hurt = submitted(engine, 2, proposer="broken")
    run_all(engine, [*fine, *hurt])
    assert len([ks for ks in broken.asked if ks]) <= 2
    for sequence in hurt:
        noted = [event for event in sequence.events if isinstance(event, Degraded)]
        assert noted == [Degraded("broken", "none", "RuntimeError: no draft today")]
        assert sequence.stats.drafted == 0 and bytes(answer(sequence)) == ROUND[24:54]
        assert "no draft today" in str(sequence.stats.speculation_off_reason)
    assert fine[0].stats.accepted > 15
    assert not [event for event in fine[0].events if isinstance(event, Degraded)]


@pytest.mark.parametrize("where", ["observe", "stop"])
def test_a_proposer_that_fails_later_costs_speed_only(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("cannot learn")

    mine = Noted("draft")
    monkeypatch.setattr(mine, where, fail)
    engine = engine_with(proposers=[mine])
    (sequence,) = running = submitted(engine, 1, proposer="draft")
    run_all(engine, running)
    assert bytes(answer(sequence)) == ROUND[24:54] and mine.asked


def test_a_replacement_drafts_in_the_same_round() -> None:
    engine = engine_with(proposers=[Broken("draft")])
    rounds, _ = rounds_of(engine, proposer="draft", k=3)
    assert (rounds[0].draft.source, len(rounds[0].draft.tokens)) == ("prompt-lookup", 3)


@pytest.mark.parametrize(
    ("offered", "used"),
    [(b"ab\xff", 3), ((97, 98, 260, 99), 2), ((-1, 97), 0), ((97, 98, 2**70), 2), (tuple(b"abcdefgh"), 4)],
)
def test_of_a_draft_only_what_is_of_use_is_verified(offered: Seq[int], used: int) -> None:
    """Tokens that the model does not have would crash it; more than was requested has no room."""

    class Odd(Noted):
        def _draft(self, ask: Ask) -> Draft:
            return Draft(tuple(offered), self.name)

    odd = Odd("odd")
    engine = engine_with(proposers=[odd])
    rounds, stats = rounds_of(engine, proposer="odd", k=4, max_tokens=9)
    assert rounds[0].draft.tokens == tuple(offered)[:used]
    assert (stats.proposers.keys() == {"none"}) is (used == 0) and odd.observed == [
        (len(r.draft.tokens), r.accepted) for r in rounds if r.draft.tokens
    ]


def test_a_refusal_names_the_proposers_and_what_would_help() -> None:
    engine = engine_with(proposers=[Noted("mine")])
    with pytest.raises(InvalidOptions, match="available: auto, mine, none, prompt-lookup") as caught:
        engine.generate("abc", proposer="draft")
    assert caught.value.remedy == "Choose a draft model: `--draft NAME`."
    with pytest.raises(InvalidOptions) as caught:
        engine.generate("abc", proposer="memory")
    assert caught.value.remedy == "Run `localspec config set memory true`."
