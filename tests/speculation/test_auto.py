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
