"""The controller: what pays is drafted, what does not is left; estimates of survival follow the request."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.speculation.controller import (
    BUCKETS,
    Calibration,
    Controller,
    EarlyStop,
    Survival,
    best_length,
)
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.ngrams import PromptLookup
from localspec.speculation.proposer import NOTHING, Ask, Draft, Proposer, Savings, nothing
from tests.conformance.proposer import ProposerConformance, ask
from tests.toy import ToyBackend, ToyVocabulary
from tests.toys import small_markov

FLAT = {w: 1.0 + 0.02 * w for w in range(1, 40)}
STEEP = {w: float(w) for w in range(1, 40)}
STEPS = {w: 1.0 if w == 1 else 2.6 if w <= 8 else 5.0 for w in range(1, 40)}


def curve(costs: dict[int, float], *, unit: float = 0.01) -> CostCurve:
    measured = CostCurve()
    for _ in range(5):
        for width, cost in costs.items():
            measured.observe(width, 100, unit * cost)
    return measured


class Coin(Proposer):
    """A proposer with the true text that is right with a certain probability per token."""

    def __init__(self, truth: Sequence[int], p: float, *, name: str = "coin", price: float = 0.0) -> None:
        self.name, self.costly = name, price > 0
        self.truth, self.p, self._price = truth, p, price
        self.rng = random.Random(7)
        self.asked = 0

    def price(self, ask: Ask, k: int) -> float:
        return k * self._price

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        self.asked += len(asks)
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        at = len(ask.context)
        coming = self.truth[at : at + ask.k]
        tokens: list[int] = []
        for token in coming:
            if ask.gate is not None and not ((not tokens or ask.gate.goes_on()) and ask.gate.admits(0)):
                break
            tokens.append(token if self.rng.random() < self.p else token + 1)
        return Draft(tuple(tokens), self.name, evidence=(0,) * len(tokens)) if tokens else NOTHING


TRUTH = [i % 97 for i in range(3000)]


def play(
    controller: Controller, costs: CostCurve, *, rounds: int = 400, request: int = 1
) -> tuple[float, list[Draft]]:
    """Seconds saved per second spent, and the drafts, on a machine that costs exactly what is known."""
    context, drafts = TRUTH[:5], []
    saved = spent = 0.0
    for _ in range(rounds):
        asked = ask(context, 20, request=request)._replace(savings=Savings(saved, spent))
        draft = controller.propose([asked])[0]
        right = 0
        while right < len(draft.tokens) and draft.tokens[right] == TRUTH[len(context) + right]:
            right += 1
        if draft.tokens:
            controller.observe(request, draft, right)
        context.extend(TRUTH[len(context) : len(context) + right + 1])
        took = costs.seconds(len(draft.tokens) + 1, 100)
        saved, spent = saved + (right + 1) * costs.seconds(1, 100) - took, spent + took
        drafts.append(draft)
        if len(context) > 2900:
            break
    controller.stop(request)
    return saved / spent, drafts


def steered(members: list[Proposer], costs: CostCurve) -> Controller:
    return Controller(members, costs, Calibration(), clock=lambda: 0.0)


class TestController(ProposerConformance):
    vocabulary_size = ToyVocabulary.size

    def make(self) -> Proposer:
        model = DraftModel(ToyBackend(small_markov(2)), ToyVocabulary.size)
        return steered([PromptLookup(n_min=2), model], curve(FLAT))


@pytest.mark.parametrize(
    ("costs", "p"), [(c, p) for c, p in product((FLAT, STEEP, STEPS), (0.0, 0.3, 0.6, 0.9, 1.0))]
)
def test_never_much_worse_than_plain_decoding(costs: dict[int, float], p: float) -> None:
    measured = curve(costs)
    gain, _ = play(steered([Coin(TRUTH, p)], measured), measured)
    assert gain > -0.03


class Now(Coin):
    """A proposer that is right, but drafts only now and then."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = super().propose(asks)
        return drafts if self.asked % 5 == 0 else [NOTHING for _ in asks]


def test_a_draft_model_that_loses_to_a_better_draft_is_asked_when_there_is_none() -> None:
    measured = curve(FLAT)
    model = Coin(TRUTH, 0.85, name="draft", price=0.05 * measured.seconds(1, 100))
    _, drafts = play(steered([Now(TRUTH, 1.0, name="copy"), model], measured), measured)
    sources = [draft.source for draft in drafts[20:] if draft.tokens]
    assert "copy" in sources and sources.count("draft") > 2 * sources.count("copy")


@pytest.mark.parametrize(("p", "least"), [(0.6, 0.5), (0.9, 2.0), (1.0, 6.0)])
def test_where_width_is_cheap_it_is_used(p: float, least: float) -> None:
    measured = curve(FLAT)
    gain, _ = play(steered([Coin(TRUTH, p)], measured), measured)
    assert gain > least


def test_where_width_costs_as_much_as_it_brings_nothing_is_drafted() -> None:
    measured = curve(STEEP)
    _, drafts = play(steered([Coin(TRUTH, 0.95)], measured), measured)
    assert sum(bool(draft.tokens) for draft in drafts) < 0.05 * len(drafts)
    assert drafts[-1].reason == "coin was not worth verifying"


def test_steps_in_the_cost_are_made_use_of() -> None:
    """Up to 8 wide costs the same: with drafts that are mostly right the length is what fits the step."""
    measured = curve(STEPS)
    _, drafts = play(steered([Coin(TRUTH, 0.9)], measured), measured)
    drafted = [len(draft.tokens) for draft in drafts[50:] if draft.tokens]
    assert drafted and max(set(drafted), key=drafted.count) == 7


def test_of_two_the_better_one_is_chosen() -> None:
    measured = curve(FLAT)
    members: list[Proposer] = [Coin(TRUTH, 0.3, name="worse"), Coin(TRUTH, 0.9, name="better")]
    _, drafts = play(steered(members, measured), measured)
    late = [draft.source for draft in drafts[30:] if draft.tokens]
    assert late.count("better") > 0.95 * len(late)


def test_drafts_that_take_time_are_asked_for_where_they_pay() -> None:
    measured = curve(FLAT)
    cheap, dear = Coin(TRUTH, 0.9, price=0.0005), Coin(TRUTH, 0.9, price=0.02)
    for coin, share in ((cheap, 0.9), (dear, 0.1)):
        _, drafts = play(steered([coin], measured), measured)
        asked = sum(bool(draft.tokens) for draft in drafts) / len(drafts)
        assert asked > share if coin is cheap else asked < share
    assert play(steered([dear], measured), measured)[1][-1].reason == "drafting would cost more than it saves"


def test_a_draft_model_that_is_always_wrong_is_left_alone_soon() -> None:
    measured, coin = curve(FLAT), Coin(TRUTH, 0.0, price=0.0005)
    play(steered([coin], measured), measured, rounds=600)
    assert coin.asked * 0.0005 < 0.01 * 600 * 0.01


def test_while_costs_are_not_known_drafts_are_short() -> None:
    unknown = CostCurve("F32")
    drafts = [steered([Coin(TRUTH, 1.0)], unknown).propose([ask(TRUTH[:5], 20)])[0]]
    assert 0 < len(drafts[0].tokens) <= 4


def test_offers_that_are_not_verified_teach_as_well() -> None:
    """Nothing pays here, and still it learns that the proposer is always right."""
    measured, calibration = curve(STEEP), Calibration()
    controller = Controller([Coin(TRUTH, 1.0)], measured, calibration)
    table = calibration.by_evidence("coin", (0.7,))
    before = table.rate(9, 0)
    for request in range(5):
        play(controller, measured, rounds=40, request=request)
    assert table.rate(9, 0) > before + 0.1


def test_a_request_that_lost_time_wants_better_promises() -> None:
    measured = curve(STEPS)
    calibration = Calibration()
    controller = Controller([Coin(TRUTH, 0.93)], measured, calibration)
    play(controller, measured, rounds=60)
    context = TRUTH[:5]
    for request in range(20):
        play(controller, measured, rounds=20, request=request)
    before = controller.propose([ask(context, 20, request=100)])[0]
    lost = ask(context, 20, request=101)._replace(savings=Savings(-0.5, 1.0))
    assert before.tokens and not controller.propose([lost])[0].tokens


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5])
def test_what_one_request_may_lose_is_bounded(p: float) -> None:
    """Whatever earlier requests were like: here they were all copies."""
    measured, calibration = curve(STEPS), Calibration()
    good = Controller([Coin(TRUTH, 1.0)], measured, calibration)
    for request in range(20):
        play(good, measured, rounds=20, request=request)
    bad = Controller([Coin(TRUTH, p)], measured, calibration)
    gain, _ = play(bad, measured, rounds=64, request=99)
    # One draft over the widest step is lost before anything is known of this request.
    assert gain > -0.07


def test_a_batch_shares_the_width() -> None:
    """The surer draft gets the places: together as many as pay."""
    measured = curve({w: 1.0 + 0.12 * w for w in range(1, 60)})
    sure, unsure = Coin(TRUTH, 1.0), Coin(TRUTH, 0.0)

    class Both(Proposer):
        name = "coin"

        def propose(self, asks: Sequence[Ask]) -> list[Draft]:
            return [(sure if ask.request == 1 else unsure)._one(ask) for ask in asks]

    controller = Controller([Both()], measured, Calibration())
    contexts = {1: TRUTH[:5], 2: TRUTH[:5]}
    for _ in range(60):
        drafts = controller.propose([ask(contexts[r], 20, request=r) for r in (1, 2)])
        for r, draft in zip((1, 2), drafts, strict=True):
            right = 0
            while right < len(draft.tokens) and draft.tokens[right] == TRUTH[len(contexts[r]) + right]:
                right += 1
            contexts[r].extend(TRUTH[len(contexts[r]) : len(contexts[r]) + right + 1])
    assert len(drafts[0].tokens) > 5 > len(drafts[1].tokens)


@given(st.lists(st.floats(0, 1), max_size=12), st.lists(st.floats(0.01, 3), min_size=13, max_size=13))
def test_the_best_length_is_the_best(rates: list[float], steps: list[float]) -> None:
    survival, alive = [], 1.0
    for rate in rates:
        alive *= rate
        survival.append(alive)
    seconds = [sum(steps[: k + 1]) for k in range(13)]
    by_hand = [(1.0 + sum(survival[:k])) / seconds[k] for k in range(len(survival) + 1)]
    k, rate = best_length(survival, seconds)
    assert rate == pytest.approx(max(by_hand)) and by_hand[k] == pytest.approx(rate)


def test_early_stop_looks_beyond_a_step() -> None:
    """The first token alone does not pay, three do: a threshold on one would end the draft at once."""
    seconds = [1.0, 2.2, 2.3, 2.4]
    stop = EarlyStop(rate=lambda evidence: 0.95, calibrated=[0.95] * 4, seconds=seconds)
    assert stop.goes_on() and stop.admits(0) and stop.goes_on() and stop.admits(0)
    hopeless = EarlyStop(rate=lambda evidence: 0.2, calibrated=[0.95] * 4, seconds=seconds)
    assert not hopeless.admits(0)


class Unsure(Coin):
    """A draft model that runs, and has no draft or one that it is unsure of."""

    prior = (0.7, 0.05)

    def __init__(self, draft: Draft) -> None:
        super().__init__(TRUTH, 1.0, name="draft", price=0.0001)
        self.draft = draft

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        self.asked += len(asks)
        return [self.draft for _ in asks]


class Copier(Coin):
    """Offers what may be a copy."""

    prior = (0.6,)


@pytest.mark.parametrize(
    "draft", [nothing("the draft model is not sure enough"), Draft((1, 2), "draft", evidence=(1, 1))]
)
def test_a_draft_model_without_a_good_draft_leaves_the_one_at_hand(draft: Draft) -> None:
    model, copier = Unsure(draft), Copier(TRUTH, 1.0, name="copy")
    (found,) = steered([copier, model], curve(FLAT)).propose([ask(TRUTH[:5], 8)])
    assert model.asked == 1 and found.source == "copy" and found.tokens


def test_rates_become_those_of_the_text() -> None:
    survival, rng = Survival((0.7,)), random.Random(2)
    for request in range(20):
        for _ in range(100):
            survival.learn(request, 3, right=rng.random() < 0.2)
        survival.stop(request)
    # A new request is trusted somewhat less than the average one.
    assert 0.1 < survival.rate(99, 3) < 0.2
    assert 0.55 < survival.rate(99, 4) < 0.7


def test_a_long_text_is_one_witness_among_many() -> None:
    survival = Survival((0.5,))
    for request in range(30):
        survival.learn(request, 0, right=False)
        survival.stop(request)
    for _ in range(5000):
        survival.learn(99, 0, right=True)
    survival.stop(99)
    assert survival.rate(100, 0) < 0.3


def test_what_one_evidence_shows_is_believed_of_the_others_too() -> None:
    """In a text that does not repeat itself, long matches are worth less as well."""
    survival = Survival((0.5, 0.9))
    before = survival.rate(1, 1)
    for _ in range(8):
        survival.learn(1, 0, right=False)
    assert survival.rate(1, 1) < before - 0.2


def test_a_request_that_differs_is_believed_within_it_alone() -> None:
    survival = Survival((0.7,))
    for request in range(20):
        for _ in range(30):
            survival.learn(request, 0, right=True)
        survival.stop(request)
    for _ in range(30):
        survival.learn(99, 0, right=False)
    assert survival.rate(99, 0) < 0.3
    assert survival.rate(100, 0) > 0.9


def test_old_texts_fade() -> None:
    survival = Survival((0.5,))
    for request in range(400):
        for _ in range(10):
            survival.learn(request, 0, right=request < 300)
        survival.stop(request)
    assert survival.rate(999, 0) < 0.1
    for request in range(400, 600):  # without a draft
        survival.stop(request)
    assert survival.rate(999, 0) > 0.3


def test_the_curve_is_the_product() -> None:
    survival = Survival((0.5, 0.8))
    first, second = survival.rate(1, 0), survival.rate(1, 1)
    assert survival.curve(1, (0, 1, 1)) == pytest.approx([first, first * second, first * second**2])


def test_what_was_learnt_is_kept_for_proposers_that_come_later() -> None:
    calibration = Calibration()
    table = calibration.by_evidence("memory", (0.7,))
    for _ in range(100):
        table.learn(1, 2, right=False)
    table.stop(1)
    again = Calibration()
    again.restore(json.loads(json.dumps(calibration.state())))
    assert again.by_evidence("memory", (0.7,)).rate(9, 2) == table.rate(9, 2)
    later = Calibration()
    later.restore(again.state())
    assert later.state().keys() == calibration.state().keys()


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"right": [1.0], "all": [1.0]},
        {"right": [2.0] * BUCKETS, "all": [1.0] * BUCKETS},
        {"right": [0.0] * BUCKETS, "all": [0.0] * BUCKETS},
        {"right": ["x"] * BUCKETS, "all": [1.0] * BUCKETS},
        {"right": [float("nan")] * BUCKETS, "all": [1.0] * BUCKETS},
    ],
)
def test_a_spoilt_record_is_refused(table: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Calibration().restore({"draft": table})
