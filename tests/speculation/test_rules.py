"""The plain rules: a fixed length, a moving average, the repetition of a prompt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import localspec
from localspec.backends.toy import ToyBackend, ToyVocabulary
from localspec.protocol.engine_config import EngineConfig
from localspec.speculation.controller import Controller
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.proposer import Nothing, Proposer
from localspec.speculation.rules import LITTLE_REPETITION, Ema, Fixed, Rules, repetition
from localspec.speculation.survival import Calibration
from tests.conformance.proposer import ProposerConformance, ask
from tests.toys import small_markov

PACKAGE = Path(localspec.__file__).parent


def members() -> list[Proposer]:
    return [PromptLookup(n_min=2), model()]


def model() -> Proposer:
    return DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)


def rules(**settings: object) -> Rules:
    config = EngineConfig(**settings)  # type: ignore[arg-type]
    return Rules(config, CostCurve(), Calibration())


@pytest.mark.parametrize("name", ["controller", "repetition_gate", "disable_by_batch_size"])
def test_a_rules_setting_is_read_in_one_place(name: str) -> None:
    assert name in EngineConfig.__struct_fields__
    reads = re.compile(rf"\.{name}\b(?! import)")
    assert [path.stem for path in PACKAGE.rglob("*.py") if reads.search(path.read_text("utf-8"))] == ["rules"]


def test_a_rule_for_each_controller() -> None:
    own = members()
    by_cost = rules().steered(own, own[:1])
    assert [(type(each), each.name) for each in by_cost] == [
        (Controller, "auto"),
        (Controller, "prompt-lookup"),
    ]
    assert [type(each) for each in rules(controller="ema").steered(own, own)] == [Ema]
    assert [type(each) for each in rules(controller="fixed").steered(own, own)] == [Fixed]


def test_a_crowd_and_a_prompt_without_repetition_are_obstacles_where_that_is_set() -> None:
    assert rules().crowded(99) is None and rules().obstacle("auto", [1, 2, 3, 4]) is None
    some = rules(disable_by_batch_size=2, repetition_gate=0.5)
    assert some.crowded(1) is None
    crowd = some.crowded(2)
    assert crowd is not None and not crowd.tokens and "decode together" in crowd.reason
    assert some.obstacle("auto", [1, 2, 3, 4]) == LITTLE_REPETITION
    assert some.obstacle("draft", [1, 2, 3, 4]) is None and some.obstacle("auto", [1] * 9) is None


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
    """Return the draft lengths of ``n`` rounds in which this share of each draft is right."""
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


@pytest.mark.slow
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
