"""The simple `auto`: the first proposer that has something."""

from __future__ import annotations

from localspec.backends.toy import ToyBackend, ToyVocabulary
from localspec.speculation.auto import Auto
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.proposer import Nothing, Proposer
from tests.conformance.proposer import ProposerConformance, ask
from tests.toys import small_markov


def members() -> list[Proposer]:
    return [PromptLookup(n_min=2), DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)]


class TestAuto(ProposerConformance):
    vocabulary_size = ToyVocabulary.size

    def make(self) -> Proposer:
        return Auto(members())


class TestNothing(ProposerConformance):
    def make(self) -> Proposer:
        return Nothing()


def test_lookup_first_then_the_draft_model() -> None:
    sources = [
        draft.source
        for draft in Auto(members()).propose(
            [ask([97, 98, 99, 97, 98], 3, request=1), ask([97, 98, 99], 3, request=2)]
        )
    ]
    assert sources == ["prompt-lookup", "draft"]


def test_without_an_offer_there_is_none() -> None:
    assert Auto([PromptLookup()]).propose([ask([1, 2, 3], 3)])[0].tokens == ()


def rounds(auto: Auto, accepted: int, n: int) -> list[str]:
    """Who drafted in ``n`` rounds of a text that never repeats, where so many tokens of 4 are right."""
    sources = []
    for i in range(n):
        draft = auto.propose([ask([97 + i % 5, 98, 102], 4)])[0]
        sources.append(draft.source)
        if draft.tokens:
            auto.observe(1, draft, accepted)
    return sources


def test_a_member_that_is_mostly_wrong_is_left_alone_but_for_probes() -> None:
    auto = Auto([DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)])
    sources = rounds(auto, 0, 120)
    # 0.7 · 0.9^n falls under 0.3 after nine rounds.
    assert sources[:9] == ["draft"] * 9 and sources[9:40] == ["none"] * 31
    assert 1 <= sources[40:].count("draft") <= 3


def test_a_member_that_is_mostly_right_stays() -> None:
    auto = Auto([DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)])
    assert rounds(auto, 2, 60) == ["draft"] * 60


def test_a_member_that_is_right_again_comes_back() -> None:
    auto = Auto([DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)])
    rounds(auto, 0, 10)
    assert rounds(auto, 4, 200)[-20:] == ["draft"] * 20


def test_the_next_request_starts_afresh() -> None:
    auto = Auto([DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)])
    rounds(auto, 0, 20)
    auto.stop(1)
    assert rounds(auto, 0, 1) == ["draft"]
