"""The price of wide rounds in strict mode, and the point from which drafts are worth it."""

from __future__ import annotations

import random

import pytest

from localspec.speculation.controller import NOT_WORTH_RECOMPUTING
from localspec.speculation.draft import Savings
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.recompute import NearTies, Patience, RecomputeRisk
from tests.conformance.proposer import ask
from tests.speculation.test_controller import FLAT, TRUTH, Coin, curve, steered


def test_the_rate_of_near_ties_comes_from_margins_far_above_the_bound() -> None:
    rng, ties = random.Random(1), NearTies()
    for _ in range(2000):
        ties.see(rng.expovariate(0.5))
    assert ties.rate(0.02) == pytest.approx(0.5 * 0.02, rel=0.3)
    assert ties.rate(5.0) <= 1.0 and ties.rate(0.0) == 0.0


@pytest.mark.parametrize(("rate", "tokens"), [(0.003, 64), (0.05, 200), (0.3, 7), (1.0, 12)])
def test_the_cells_that_are_written_anew_are_those_before_the_first_near_tie(
    rate: float, tokens: int
) -> None:
    rng, total, games = random.Random(2), 0, 20_000
    for _ in range(games):
        total += next((n for n in range(1, tokens + 1) if rng.random() < rate), 0)
    assert RecomputeRisk(1, rate).cells(tokens) == pytest.approx(total / games, rel=0.05, abs=0.02)


def lasting(rate: float, saved: float, *, tokens: int = 400) -> int | None:
    """Return the number of tokens until wide rounds begin, if each would save ``saved`` of a cell's time."""
    patience = Patience()
    for length in range(10, 10 + tokens):
        patience.advance(length)
        if patience.over(RecomputeRisk(1, rate), 1.0, answered=length - 10, left=1000.0):
            return length - 10
        patience.hold(saved)
    return None


def test_rare_near_ties_are_worth_it_soon_and_frequent_ones_never() -> None:
    waits = [lasting(rate, 0.7) for rate in (0.0002, 0.002, 0.005)]
    assert all(w is not None for w in waits) and waits == sorted(waits, key=lambda w: w or 0)
    assert (waits[0] or 99) <= 4
    assert lasting(0.05, 0.7) is None and lasting(1.0, 0.9) is None
    assert lasting(0.002, 0.0) is None, "nothing was missed"


def drafted(recompute_risk: RecomputeRisk | None, *, rounds: int = 60) -> tuple[list[int], set[str]]:
    """The lengths of a text's drafts, and why there were none."""
    controller = steered([PromptLookup(n_min=2)], curve(FLAT))
    context, lengths, reasons = TRUTH[:200], [], set()
    for _ in range(rounds):
        asked = ask(context, 20)._replace(
            savings=Savings(0.0, 1.0), recompute_risk=recompute_risk, answered=len(context)
        )
        (draft,) = controller.propose([asked])
        lengths.append(len(draft.tokens))
        reasons.add(draft.reason)
        context.extend(TRUTH[len(context) : len(context) + len(draft.tokens) + 1])
    return lengths, reasons


def test_drafts_are_as_short_as_leaves_the_cells_exact() -> None:
    assert max(drafted(None)[0]) > 8
    assert max(drafted(RecomputeRisk(3, 0.2))[0]) == 2
    lengths, reasons = drafted(RecomputeRisk(1, 0.2))
    assert not any(lengths) and reasons == {NOT_WORTH_RECOMPUTING.reason}


def test_a_draft_model_that_is_held_back_is_asked_in_the_end() -> None:
    """The time that it would have saved counts in every round, not only in those that weigh it."""
    controller = steered([Coin(TRUTH, 1.0, name="draft", price=0.0005)], curve(FLAT))
    context = TRUTH[:200]
    for tokens in range(100):
        asked = ask(context, 20)._replace(
            savings=Savings(0.0, 1.0), recompute_risk=RecomputeRisk(1, 0.005), answered=tokens
        )
        if controller.propose([asked])[0].tokens:
            assert 0 < tokens < 60
            return
        context.append(TRUTH[len(context)])
    raise AssertionError("never asked")


def test_requests_that_share_a_forward_share_what_is_exact() -> None:
    controller = steered([PromptLookup(n_min=2)], curve(FLAT))
    asks = [
        ask(TRUTH[:200], 20, request=r)._replace(
            savings=Savings(0.0, 1.0), recompute_risk=RecomputeRisk(4, 0.3)
        )
        for r in (1, 2)
    ]
    assert [len(draft.tokens) for draft in controller.propose(asks)] == [1, 1]


def test_where_near_ties_are_rare_long_drafts_begin_after_a_while() -> None:
    lengths, _ = drafted(RecomputeRisk(1, 0.0005))
    first = next(i for i, length in enumerate(lengths) if length)
    assert 0 < first < 30 and max(lengths[first:]) > 8
