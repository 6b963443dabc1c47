"""Top-k, top-p and min-p of real vocabularies against a slow reference in double precision, and how firmly
they hold: no error smaller than the margin changes a choice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.errors import EngineError
from localspec.speculation.cuts import SORTED, Cuts, cut, surely_keeps
from localspec.speculation.noise import Noise, Stream
from localspec.speculation.sampling import Sampler, SamplingParams

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


KINDS: tuple[Callable[[int, np.random.Generator], Row], ...] = (
    natural,
    peaked,
    flat,
    tied,
    equal,
    mostly_impossible,
    far_apart,
)

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
    found = cut(row, cuts, np.empty_like(row))
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
        found, expected = cut(row, cuts, np.empty_like(row)), reference(row, cuts)
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


def test_samples_of_a_cut_row_follow_its_distribution() -> None:
    """20,000 draws from a row of 8,192 tokens."""
    one = Sampler(SamplingParams(0.8, top_p=0.9), Noise(11), seeded=True)
    row = natural(8_192, np.random.default_rng(6))
    distribution = one.distribution(row, ())
    n = 20_000
    drawn = np.bincount([distribution.sample(one.noise, p, Stream.TARGET) for p in range(n)], minlength=8_192)
    assert drawn.sum() == drawn[distribution.tokens].sum()
    expected = distribution.probabilities * n
    often = expected >= 5
    seen, hoped = drawn[distribution.tokens][often], expected[often]
    # Normal approximation of chi-square: 4 standard deviations over its mean.
    degrees = int(often.sum()) - 1
    assert ((seen - hoped) ** 2 / hoped).sum() < degrees + 4 * math.sqrt(2 * degrees)


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
        inside = cut(row, sampler.params.cuts, np.empty_like(row))
        first = sampler.noise.race(position, Stream.TARGET, row[inside], temperature, inside)
        assert sampler.pick(row, (), position) == inside[first]


def test_a_token_is_surely_kept_only_inside_the_nucleus() -> None:
    row = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    kept = [surely_keeps(row, Cuts(top_p=0.75), token, np.empty_like(row)) for token in range(4)]
    assert kept == [False, True, True, True]
    assert not surely_keeps(row, Cuts(top_p=0.75, min_p=0.6), 2, np.empty_like(row))
