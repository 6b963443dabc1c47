"""The plain rules: a fixed length, a moving average, the repetition of a prompt."""

from __future__ import annotations

import pytest

from localspec.backends.toy import ToyBackend, ToyVocabulary
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.proposer import Nothing, Proposer
from localspec.speculation.rules import Ema, Fixed, repetition
from tests.conformance.proposer import ProposerConformance, ask
from tests.toys import small_markov


def members() -> list[Proposer]:
    return [PromptLookup(n_min=2), model()]


def model() -> Proposer:
    return DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)


class TestFixed(ProposerConformance):
    vocabulary_size = ToyVocabulary.size

    def make(self) -> Proposer:
        return Fixed(members(), 4)


class TestEma(ProposerConformance):
    vocabulary_size = ToyVocabulary.size

    def make(self) -> Proposer:
        return Ema(members(), 4)


class TestNothing(ProposerConformance):
    def make(self) -> Proposer:
        return Nothing()


def test_lookup_first_then_the_draft_model() -> None:
    sources = [
        draft.source
        for draft in Fixed(members(), 3).propose(
            [ask([97, 98, 99, 97, 98], 3, request=1), ask([97, 98, 99], 3, request=2)]
        )
    ]
    assert sources == ["prompt-lookup", "draft"]


def test_fixed_is_always_as_long() -> None:
    fixed = Fixed([model()], 4)
    for _ in range(50):
        draft = fixed.propose([ask([97, 98, 102], 20)])[0]
        assert len(draft.tokens) == 4
        fixed.observe(1, draft, 0)


def lengths(ema: Ema, accepted: float, n: int, k: int = 6) -> list[int]:
    """How long the drafts of ``n`` rounds are where this share of each is right."""
    found = []
    for i in range(n):
        draft = ema.propose([ask([97 + i % 5, 98, 102], k)])[0]
        found.append(len(draft.tokens))
        if draft.tokens:
            ema.observe(1, draft, round(accepted * len(draft.tokens)))
    return found


def test_the_length_follows_the_average() -> None:
    assert lengths(Ema([model()], 6), 1.0, 40)[-1] == 6
    # 0.7 · 0.9^n: over 0.5 four times, over 0.3 nine times, then off.
    falling = lengths(Ema([model()], 6), 0.0, 40)
    assert falling[:4] == [4] * 4 and falling[4:9] == [1] * 5 and falling[9:40] == [0] * 31


def test_what_is_off_is_probed_with_one_token_and_comes_back() -> None:
    ema = Ema([model()], 6)
    lengths(ema, 0.0, 10)
    again = lengths(ema, 1.0, 400)
    probes = [n for n in again if n]
    assert probes[0] == 1 and again[-1] == 6


def test_the_next_request_starts_afresh() -> None:
    ema = Ema([model()], 6)
    lengths(ema, 0.0, 20)
    ema.stop(1)
    assert lengths(ema, 0.0, 1) == [4]


@pytest.mark.parametrize(
    ("tokens", "share"), [([], 0.0), ([1, 2], 0.0), (range(50), 0.0), ([1, 2, 3] * 20, 1 - 3 / 58)]
)
def test_repetition(tokens: list[int], share: float) -> None:
    assert repetition(list(tokens)) == pytest.approx(share)
