"""The oracles find the least time there is."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.toy import ToyBackend
from localspec.bench.curve import CostLine
from localspec.bench.log import Log
from localspec.bench.oracle import (
    MOST,
    Offers,
    greedy_sampler,
    least_seconds,
    model_offers,
    offers_along,
    plain_seconds,
    true_offers,
)
from localspec.speculation.draft import Ask, shared_length
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from tests.toys import small_markov

FLAT = CostLine({1: 1.0})
STEEP = CostLine({1: 1.0, 2: 2.5})

costs = st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5).map(
    lambda steps: CostLine({width: sum(steps[:width]) for width in range(1, len(steps) + 1)})
)


class Problem(NamedTuple):
    tokens: int
    offers: list[Offers]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    tokens = draw(st.integers(1, 9))
    rights = st.lists(st.integers(0, 9), min_size=tokens, max_size=tokens)
    offers = st.builds(Offers, rights, st.sampled_from([0.0, 0.3]))
    return Problem(tokens, draw(st.lists(offers, max_size=3)))


def brute_force(problem: Problem, cost: CostLine) -> float:
    """Every sequence of rounds."""

    @cache
    def least(position: int) -> float:
        if position >= problem.tokens:
            return 0.0
        choices = [(0, 0.0)]
        for right, token_s in problem.offers:
            room = min(right[position], problem.tokens - position - 1)
            choices += [(k, k * token_s) for k in range(1, room + 1)]
        return min(cost(k + 1) + extra + least(position + k + 1) for k, extra in choices)

    return least(1)


def near(a: float, b: float) -> bool:
    return abs(a - b) < 1e-9


@given(problems(), costs)
def test_no_sequence_of_rounds_is_faster(problem: Problem, cost: CostLine) -> None:
    assert near(least_seconds(problem.tokens, problem.offers, cost), brute_force(problem, cost))


@given(problems(), costs)
def test_an_oracle_is_never_slower_than_plain_and_never_faster_than_the_truth(
    problem: Problem, cost: CostLine
) -> None:
    free = [Offers(offer.right) for offer in problem.offers]
    least = least_seconds(problem.tokens, free, cost)
    truth = least_seconds(problem.tokens, [true_offers(problem.tokens)], cost)
    assert truth - 1e-9 <= least <= plain_seconds(problem.tokens, cost) + 1e-9


def test_what_costs_nothing_to_verify_is_drafted_at_full_length() -> None:
    assert least_seconds(22, [true_offers(22)], FLAT) == 1.0
    assert least_seconds(23, [true_offers(23)], FLAT) == 2.0


def test_what_costs_more_than_it_gives_is_left_alone() -> None:
    assert least_seconds(10, [true_offers(10)], STEEP) == plain_seconds(10, STEEP) == 9.0


def test_a_draft_model_pays_for_each_token() -> None:
    knowing = true_offers(3).right
    assert least_seconds(3, [Offers(knowing, token_s=0.4)], FLAT) == 1.4
    assert least_seconds(3, [Offers(knowing, token_s=1.4)], FLAT) == 2.0


def test_an_answer_of_one_token_or_none_needs_no_round() -> None:
    assert least_seconds(1, [Offers([5])], FLAT) == least_seconds(0, [], FLAT) == 0.0


def test_offers_are_what_the_proposer_says_along_the_text() -> None:
    log = Log("w", "c", 0, prompt=[1, 2, 3, 4, 5, 1, 2], output=[3, 4, 9, 9, 1, 2, 3])
    # Behind "1 2" stands 3 4 5: two are right; behind "2 3" 4 5: one; "3 4" is followed by a 5, not a 9.
    assert offers_along(PromptLookup(), log, 1).right == [2, 1, 0, 0, 0, 0, 1]


class Greedy(NamedTuple):
    """A text, and a draft model that guesses some of it."""

    log: Log
    draft: ToyBackend


def toy_pair(seed: int, *, n_ctx: int = 512) -> Greedy:
    target, draft = small_markov(seed, sharpness=3.0), small_markov(seed, order=1, sharpness=3.0)
    text = [97, 98, 99]
    while len(text) < 120:
        logits = list(target(text))
        text.append(max(range(256), key=logits.__getitem__))
    return Greedy(Log("w", "c", 0, text[:40], text[40:]), ToyBackend(draft, n_ctx=n_ctx))


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(0, 30))
def test_one_pass_of_the_draft_model_tells_what_drafting_at_every_position_would(seed: int) -> None:
    log, draft = toy_pair(seed)
    proposer, context, drafted = DraftModel(draft, 260), list(log.prompt), []
    for position, token in enumerate(log.output):
        (said,) = proposer.propose([Ask(1, context, MOST, greedy_sampler())])
        drafted.append(shared_length(said.tokens, log.output[position:]))
        context.append(token)
    proposer.stop(1)
    assert model_offers(draft, log, 0.5) == Offers(drafted, 0.5)


def test_a_draft_model_offers_nothing_behind_its_own_context() -> None:
    log, draft = toy_pair(3, n_ctx=60)
    right = model_offers(draft, log, 0.0).right
    assert len(right) == len(log.output)
    assert right[20:] == [0] * 60
