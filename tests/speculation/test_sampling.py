"""The sampling pipeline: by hand, its cuts against a slow reference, its noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.errors import EngineError
from localspec.speculation.cuts import SORTED, Cuts, cut, surely_keeps
from localspec.speculation.noise import Noise, NoiseStream
from localspec.speculation.sampling import Distribution, Sampler, SamplingParams

ROW = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))


def sampler(prompt: tuple[int, ...] = (), **params: Any) -> Sampler:
    return Sampler(SamplingParams(**params), Noise(0), seeded=True, prompt=prompt)


def probabilities(distribution: Distribution) -> dict[int, float]:
    pairs = zip(distribution.tokens.tolist(), distribution.probabilities.tolist(), strict=True)
    return {token: round(p, 4) for token, p in pairs}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3}),
        ({"temperature": 0.5}, {0: 0.0333, 1: 0.5333, 2: 0.1333, 3: 0.3}),
        ({"top_k": 2}, {1: 0.5714, 3: 0.4286}),
        ({"top_k": 2, "top_p": 0.5}, {1: 1.0}),  # top-p of what top-k leaves
        ({"top_p": 0.41}, {1: 0.5714, 3: 0.4286}),
        ({"min_p": 0.6}, {1: 0.5714, 3: 0.4286}),  # relative to the best
    ],
)
def test_temperature_top_k_top_p_and_min_p_in_their_order(
    params: dict[str, Any], expected: dict[int, float]
) -> None:
    assert probabilities(sampler(**{"temperature": 1.0, **params}).distribution(ROW, ())) == expected


def test_the_repetition_penalty_covers_the_prompt() -> None:
    row = np.array([2.0, -2.0, 1.0], dtype=np.float32)
    scores, _ = sampler((0, 1), temperature=1.0, repeat_penalty=2.0).scores(row, ())
    assert scores.tolist() == [1.0, -4.0, 1.0]


def test_frequency_and_presence_cover_the_answer_only() -> None:
    one = sampler((0,), temperature=1.0, frequency_penalty=0.5, presence_penalty=0.25)
    one.observe(1)
    one.observe(1)
    assert one.scores(np.zeros(3, dtype=np.float32), ())[0].tolist() == [0.0, -1.25, 0.0]


def test_the_penalty_context_grows_with_the_draft() -> None:
    one = sampler(temperature=1.0, frequency_penalty=1.0, repeat_penalty=2.0)
    row = np.ones(3, dtype=np.float32)
    assert one.scores(row, (2, 2))[0].tolist() == [1.0, 1.0, -1.5]
    assert one.scores(row, ())[0].tolist() == [1.0, 1.0, 1.0]


def test_penalties_look_at_the_last_tokens_only() -> None:
    one = sampler((0, 1), temperature=1.0, repeat_penalty=2.0, frequency_penalty=0.5, repeat_last_n=2)
    row = np.ones(4, dtype=np.float32)
    assert one.scores(row, ())[0].tolist() == [0.5, 0.5, 1.0, 1.0]
    one.observe(2)
    assert one.scores(row, ())[0].tolist() == [1.0, 0.5, 0.0, 1.0]
    assert one.scores(row, (3, 3))[0].tolist() == [1.0, 1.0, 1.0, -0.5]
    off = sampler((0, 1), repeat_penalty=2.0, repeat_last_n=0)
    assert off.scores(row, (1,))[0] is row
    assert sampler((0,), repeat_penalty=2.0, repeat_last_n=-1).scores(row, ())[0].tolist() == [0.5, 1, 1, 1]


def test_bias_comes_before_the_penalties_and_the_temperature() -> None:
    row = np.array([1.0, 1.0, 1.0], dtype=np.float32)
    one = sampler((1,), temperature=1.0, repeat_penalty=2.0, logit_bias=((1, 3.0), (2, -1.0), (9, 5.0)))
    assert one.scores(row, ())[0].tolist() == [1.0, 2.0, 0.0] and row.tolist() == [1.0, 1.0, 1.0]
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


def test_the_difference_of_two_distributions() -> None:
    p = Distribution(np.array([1, 3, 5]), np.array([0.5, 0.3, 0.2]))
    q = Distribution(np.array([5, 1, 9]), np.array([0.1, 0.7, 0.2]))
    assert probabilities(p.minus(q)) == {1: 0.0, 3: 0.75, 5: 0.25}
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
    scores, _ = one.scores(row, (1,))
    # Scores too close for their weights to differ may stand for one another.
    assert np.isclose(scores[found.tokens].max(), scores.max(), rtol=1e-9, atol=1e-12)
    assert (np.diff(found.tokens) > 0).all()


Row = NDArray[np.float32]
SIZES = (5, 100, 8_192, 151_936, 256_000)
CLOSE = 1e-5
"""share of the mass, and logits, by which single precision may be off"""


def natural(size: int, rng: np.random.Generator) -> Row:
    return np.asarray(
        20.0 - 1.5 * np.log(rng.permutation(size) + 1.0) + rng.standard_normal(size), np.float32
    )


def peaked(size: int, rng: np.random.Generator) -> Row:
    row = rng.standard_normal(size).astype(np.float32)
    row[rng.integers(size)] = 25.0
    return row


def flat(size: int, rng: np.random.Generator) -> Row:
    return rng.standard_normal(size).astype(np.float32)


def tied(size: int, rng: np.random.Generator) -> Row:
    return np.asarray(np.round(natural(size, rng) * 2) / 2, np.float32)


def equal(size: int, rng: np.random.Generator) -> Row:
    return np.full(size, 3.25, np.float32)


def mostly_impossible(size: int, rng: np.random.Generator) -> Row:
    row = natural(size, rng)
    row[rng.permutation(size)[3:]] = -np.inf
    return row


def far_apart(size: int, rng: np.random.Generator) -> Row:
    row = np.full(size, -1e9, np.float32)
    row[: min(size, 6)] = rng.standard_normal(min(size, 6))
    return row


KINDS = (natural, peaked, flat, tied, equal, mostly_impossible, far_apart)

CUTS = st.builds(
    Cuts,
    temperature=st.sampled_from([0.01, 0.1, 0.7, 0.8, 1.5]),
    top_k=st.sampled_from([0, 1, 2, 40, 1000, 5000, 100_000]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.999, 0.999999, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
).filter(lambda cuts: cuts.any)


def reference(row: Row, cuts: Cuts, *, p_shift: float = 0.0, min_shift: float = 0.0) -> NDArray[np.int64]:
    """Ids that are kept, by sorting all of the row in double precision; of equal logits the first."""
    scores = row.astype(np.float64)
    order = np.argsort(-scores, kind="stable")
    if 0 < cuts.top_k < len(scores):
        order = order[: cuts.top_k]
    if cuts.top_p < 1.0:
        weights = np.exp((scores[order] - scores[order[0]]) / cuts.temperature)
        mass = np.cumsum(weights) / weights.sum()
        n = int(np.searchsorted(mass, max(cuts.top_p + p_shift, 0.0))) + 1
        order = order[:n]
    if cuts.min_p > 0.0:
        floor = scores[order[0]] + cuts.temperature * math.log(cuts.min_p) + min_shift
        order = order[: max(int(np.count_nonzero(scores[order] >= floor)), 1)]
    return np.sort(order)


@settings(max_examples=120, deadline=None)
@given(cuts=CUTS, kind=st.sampled_from(KINDS), size=st.sampled_from(SIZES), seed=st.integers(0, 2**32 - 1))
def test_what_is_kept_is_what_sorting_all_of_it_keeps(
    cuts: Cuts, kind: Callable[[int, np.random.Generator], Row], size: int, seed: int
) -> None:
    row = kind(size, np.random.default_rng(seed))
    found = cut(row, float(row.max()), cuts, np.empty_like(row))
    assert (np.diff(found) > 0).all()
    if cuts.top_p == 1.0 and cuts.min_p in (0.0, 1.0):
        assert found.tolist() == reference(row, cuts).tolist()
        return
    # The mass is summed in single precision: a token whose turn is nearer than that may be in or out. Sets
    # that begin with the most probable tokens lie in one another, so sizes tell.
    fewest = reference(row, cuts, p_shift=-CLOSE, min_shift=CLOSE)
    most = reference(row, cuts, p_shift=CLOSE, min_shift=-CLOSE)
    possible = np.isin(found, most) | (row[found] == -np.inf)
    assert possible.all() and np.isin(fewest, found).all()


def test_more_than_are_sorted_are_cut_to_the_token() -> None:
    """Values in the bin of the last token are sorted, equal ones by their ids."""
    row = np.round(flat(151_936, np.random.default_rng(5)), 3).astype(np.float32)
    for top_p in (0.3, 0.5, 0.9):
        cuts = Cuts(top_p=top_p)
        found, expected = cut(row, float(row.max()), cuts, np.empty_like(row)), reference(row, cuts)
        assert len(found) > SORTED and abs(len(found) - len(expected)) <= 2
        last = row[found].min()
        assert set(np.flatnonzero(row > last)) <= set(found.tolist())
        ties = np.flatnonzero(row == last)
        assert np.isin(ties, found).tolist() == sorted(np.isin(ties, found).tolist(), reverse=True)


@pytest.mark.parametrize("size", [100, 8_192, 151_936])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(repeat_penalty=1.1),
        SamplingParams(0.7),
        SamplingParams(0.8, top_p=0.95),
        SamplingParams(0.8, top_k=40, top_p=0.95, min_p=0.05),
    ],
)
def test_what_is_no_number_is_never_chosen(size: int, params: SamplingParams) -> None:
    rng = np.random.default_rng(8)
    row = natural(size, rng)
    row[rng.permutation(size)[: size // 2]] = np.nan
    one = Sampler(params, Noise(1), seeded=True)
    for position in range(20):
        assert np.isfinite(row[one.pick(row, (), position)])
    with pytest.raises(EngineError, match="no valid number"):
        one.pick(np.full(size, np.nan, np.float32), (), 0)
    with pytest.raises(EngineError, match="no valid number"):
        one.pick(np.full(size, -np.inf, np.float32), (), 0)


def test_an_infinite_logit_is_certain() -> None:
    row = natural(1000, np.random.default_rng(1))
    row[17] = np.inf
    one = Sampler(SamplingParams(0.8, top_p=0.95), Noise(1), seeded=True)
    assert {one.pick(row, (), position) for position in range(20)} == {17}


@pytest.mark.parametrize("temperature", [1.0, 1.5, 5.0])
@pytest.mark.parametrize(("top_p", "min_p"), [(0.5, 0.0), (0.99, 0.0), (0.9, 0.05)])
@pytest.mark.parametrize("make", [natural, peaked, flat])
def test_a_token_drawn_before_the_cut_is_that_of_the_nucleus(
    make: Callable[[int, np.random.Generator], Row], top_p: float, min_p: float, temperature: float
) -> None:
    sampler = Sampler(
        SamplingParams(temperature=temperature, top_p=top_p, min_p=min_p), Noise(2), seeded=True
    )
    for position in range(20):
        row = make(8_192, np.random.default_rng(position))
        inside = cut(row, float(row.max()), sampler.params.cuts, np.empty_like(row))
        first = sampler.noise.race(position, NoiseStream.TARGET, row[inside], temperature, inside)
        assert sampler.pick(row, (), position) == inside[first]


def test_a_token_is_surely_kept_only_inside_the_nucleus() -> None:
    row = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    top = float(row.max())
    kept = [surely_keeps(row, top, Cuts(top_p=0.75), token, np.empty_like(row)) for token in range(4)]
    assert kept == [False, True, True, True]
    assert not surely_keeps(row, top, Cuts(top_p=0.75, min_p=0.6), 2, np.empty_like(row))


TOKENS = np.arange(1000, dtype=np.int64)


def test_a_key_has_its_numbers_whichever_tokens_are_asked() -> None:
    assert Noise(7).uniform(3, NoiseStream.ACCEPT) == Noise(7).uniform(3, NoiseStream.ACCEPT)
    numbers = Noise(7).gumbel(5, NoiseStream.TARGET, TOKENS)
    assert Noise(7).gumbel(5, NoiseStream.TARGET, TOKENS[[900, 4]]).tolist() == [numbers[900], numbers[4]]


def test_seed_position_and_stream_all_matter() -> None:
    base = Noise(7).gumbel(5, NoiseStream.TARGET, TOKENS)
    for other in (
        Noise(8).gumbel(5, NoiseStream.TARGET, TOKENS),
        Noise(7).gumbel(6, NoiseStream.TARGET, TOKENS),
        Noise(7).gumbel(5, NoiseStream.DRAFT, TOKENS),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.15


def test_uniform_numbers_are_uniform() -> None:
    numbers = np.array([Noise(s).uniform(p, NoiseStream.ACCEPT) for s in range(100) for p in range(100)])
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    # 19 degrees of freedom: 43.8 is the 0.1 % point.
    assert ((counts - 500) ** 2 / 500).sum() < 43.8


def test_neighbouring_positions_are_independent() -> None:
    numbers = np.array([Noise(3).uniform(p, NoiseStream.TARGET) for p in range(5000)])
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.05


def test_the_largest_seed_and_position_are_fine() -> None:
    assert 0 < Noise(2**63 - 1).uniform(2**31, NoiseStream.RESIDUAL) < 1


@pytest.mark.parametrize("size", [1, 3, 260, 8192, 151_936])
def test_the_winner_is_that_of_all(size: int) -> None:
    tokens = np.arange(size)
    for kind in KINDS:
        scores = kind(size, np.random.default_rng(size))
        for position in range(50 if size < 10_000 else 5):
            noise = Noise(position)
            perturbed = scores + noise.gumbel(position, NoiseStream.TARGET, tokens)
            assert noise.race(position, NoiseStream.TARGET, scores) == perturbed.argmax(), kind


def test_winners_are_distributed_as_the_softmax_says() -> None:
    scores = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))
    noise = Noise(11)
    wins = np.bincount([noise.race(p, NoiseStream.TARGET, scores) for p in range(20_000)], minlength=4)
    expected = 20_000 * np.exp(scores)
    # 3 degrees of freedom: 16.3 is the 0.1 % point.
    assert ((wins - expected) ** 2 / expected).sum() < 16.3
