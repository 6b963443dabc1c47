"""The sampling pipeline, step by step, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.speculation.cuts import SORTED
from localspec.speculation.noise import Noise, Stream
from localspec.speculation.sampling import Distribution, Sampler, SamplingParams

ROW = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))


def sampler(prompt: tuple[int, ...] = (), **params: Any) -> Sampler:
    return Sampler(SamplingParams(**params), Noise(0), seeded=True, prompt=prompt)


def probabilities(distribution: Distribution) -> dict[int, float]:
    pairs = zip(distribution.tokens.tolist(), distribution.probabilities.tolist(), strict=True)
    return {token: round(p, 4) for token, p in pairs}


def test_temperature_one_is_the_softmax() -> None:
    assert probabilities(sampler(temperature=1.0).distribution(ROW, ())) == {0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3}


def test_temperature_sharpens() -> None:
    found = probabilities(sampler(temperature=0.5).distribution(ROW, ()))
    assert found == {0: 0.0333, 1: 0.5333, 2: 0.1333, 3: 0.3}


def test_top_k_keeps_the_k_best() -> None:
    assert probabilities(sampler(temperature=1.0, top_k=2).distribution(ROW, ())) == {1: 0.5714, 3: 0.4286}


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.39, {1}), (0.41, {1, 3}), (0.75, {1, 3, 2}), (1.0, {0, 1, 2, 3})]
)
def test_top_p_keeps_the_fewest_that_reach_the_mass(top_p: float, kept: set[int]) -> None:
    assert set(probabilities(sampler(temperature=1.0, top_p=top_p).distribution(ROW, ()))) == kept


def test_top_p_on_a_large_vocabulary_does_not_depend_on_the_shortcut() -> None:
    row = np.random.default_rng(0).standard_normal(2 * SORTED).astype(np.float32)
    for top_p in (0.1, 0.5, 0.99):
        found = sampler(temperature=1.0, top_p=top_p).distribution(row, ())
        p = np.exp(row.astype(np.float64) - row.max())
        p /= p.sum()
        order = np.argsort(-p, kind="stable")
        n = int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1
        assert found.tokens.tolist() == sorted(order[:n].tolist())


def test_min_p_is_relative_to_the_best() -> None:
    assert set(probabilities(sampler(temperature=1.0, min_p=0.6).distribution(ROW, ()))) == {1, 3}


def test_the_order_is_penalties_temperature_top_k_top_p_min_p() -> None:
    """top-k first leaves {1, 3} = (.5714, .4286); top-p 0.5 then leaves {1} alone."""
    assert probabilities(sampler(temperature=1.0, top_k=2, top_p=0.5).distribution(ROW, ())) == {1: 1.0}


def test_the_repetition_penalty_covers_the_prompt() -> None:
    row = np.array([2.0, -2.0, 1.0], dtype=np.float32)
    scores = sampler((0, 1), temperature=1.0, repeat_penalty=2.0).scores(row, ())
    assert scores.tolist() == [1.0, -4.0, 1.0]


def test_frequency_and_presence_cover_the_answer_only() -> None:
    one = sampler((0,), temperature=1.0, frequency_penalty=0.5, presence_penalty=0.25)
    one.observe(1)
    one.observe(1)
    assert one.scores(np.zeros(3, dtype=np.float32), ()).tolist() == [0.0, -1.25, 0.0]


def test_the_penalty_context_grows_with_the_draft() -> None:
    one = sampler(temperature=1.0, frequency_penalty=1.0, repeat_penalty=2.0)
    row = np.ones(3, dtype=np.float32)
    assert one.scores(row, (2, 2)).tolist() == [1.0, 1.0, -1.5]
    assert one.scores(row, ()).tolist() == [1.0, 1.0, 1.0]


def test_penalties_look_at_the_last_tokens_only() -> None:
    one = sampler((0, 1), temperature=1.0, repeat_penalty=2.0, frequency_penalty=0.5, repeat_last_n=2)
    row = np.ones(4, dtype=np.float32)
    assert one.scores(row, ()).tolist() == [0.5, 0.5, 1.0, 1.0]
    one.observe(2)
    assert one.scores(row, ()).tolist() == [1.0, 0.5, 0.0, 1.0]
    assert one.scores(row, (3, 3)).tolist() == [1.0, 1.0, 1.0, -0.5]
    off = sampler((0, 1), repeat_penalty=2.0, repeat_last_n=0)
    assert off.scores(row, (1,)) is row
    assert sampler((0,), repeat_penalty=2.0, repeat_last_n=-1).scores(row, ()).tolist() == [0.5, 1, 1, 1]


def test_bias_comes_before_the_penalties_and_the_temperature() -> None:
    row = np.array([1.0, 1.0, 1.0], dtype=np.float32)
    one = sampler((1,), temperature=1.0, repeat_penalty=2.0, logit_bias=((1, 3.0), (2, -1.0), (9, 5.0)))
    assert one.scores(row, ()).tolist() == [1.0, 2.0, 0.0] and row.tolist() == [1.0, 1.0, 1.0]
    assert sampler(logit_bias=((2, 1.0),)).pick(row, (), 0) == 2


def test_greedy_picks_the_best_after_the_penalties() -> None:
    row = np.array([3.0, 2.9], dtype=np.float32)
    assert sampler().pick(row, (), 0) == 0
    assert sampler((0,), repeat_penalty=1.5).pick(row, (), 0) == 1


@pytest.mark.parametrize("temperature", [1e-5, 1e-38, 1e-45])
def test_next_to_nothing_is_greedy(temperature: float) -> None:
    """Divided by so little, the logits of two tokens would both be infinite."""
    row = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    assert sampler(temperature=temperature).pick(row, (), 0) == row.argmax()


def test_samples_follow_the_distribution() -> None:
    one = Sampler(SamplingParams(temperature=1.0), Noise(11), seeded=True)
    distribution = one.distribution(ROW, ())
    n = 20_000
    drawn = np.bincount([distribution.sample(one.noise, p, Stream.TARGET) for p in range(n)], minlength=4)
    expected = np.array([0.1, 0.4, 0.2, 0.3]) * n
    # 3 degrees of freedom: 16.3 is the 0.1 % point.
    assert ((drawn - expected) ** 2 / expected).sum() < 16.3


def test_the_difference_of_two_distributions() -> None:
    p = Distribution(np.array([1, 3, 5]), np.array([0.5, 0.3, 0.2]))
    q = Distribution(np.array([5, 1, 9]), np.array([0.1, 0.7, 0.2]))
    assert probabilities(p.minus(q)) == {1: 0.0, 3: 0.75, 5: 0.25}


def test_the_difference_of_equal_distributions_is_the_distribution() -> None:
    p = Distribution(np.array([1, 3]), np.array([0.5, 0.5]))
    assert p.minus(p) is p


rows: st.SearchStrategy[NDArray[np.float32]] = st.lists(
    st.floats(-30, 30, width=32), min_size=2, max_size=40
).map(lambda values: np.array(values, dtype=np.float32))


@given(
    row=rows,
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 50),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 1),
    penalty=st.floats(0.5, 2),
)
def test_whatever_the_parameters_it_is_a_distribution_with_the_best_token_in_it(
    row: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float, penalty: float
) -> None:
    one = sampler(
        (0, 1), temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repeat_penalty=penalty
    )
    found = one.distribution(row, (1,))
    assert abs(found.probabilities.sum() - 1) < 1e-9 and (found.probabilities >= 0).all()
    scores = one.scores(row, (1,))
    # Scores too close for their weights to differ may stand for one another.
    assert np.isclose(scores[found.tokens].max(), scores.max(), rtol=1e-9, atol=1e-12)
    assert (np.diff(found.tokens) > 0).all()
