"""Randomness depends on seed, position and stream, and looks random."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.speculation.noise import Noise, Stream

TOKENS = np.arange(1000, dtype=np.int64)


def test_the_same_key_gives_the_same_numbers() -> None:
    one, other = Noise(7), Noise(7)
    assert one.uniform(3, Stream.ACCEPT) == other.uniform(3, Stream.ACCEPT)
    assert (one.gumbel(3, Stream.TARGET, TOKENS) == other.gumbel(3, Stream.TARGET, TOKENS)).all()


def test_a_token_has_its_number_whichever_tokens_are_asked() -> None:
    numbers = Noise(7).gumbel(5, Stream.TARGET, TOKENS)
    assert Noise(7).gumbel(5, Stream.TARGET, TOKENS[[900, 4]]).tolist() == [numbers[900], numbers[4]]


def test_seed_position_and_stream_all_matter() -> None:
    base = Noise(7).gumbel(5, Stream.TARGET, TOKENS)
    for other in (
        Noise(8).gumbel(5, Stream.TARGET, TOKENS),
        Noise(7).gumbel(6, Stream.TARGET, TOKENS),
        Noise(7).gumbel(5, Stream.DRAFT, TOKENS),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.15


def test_uniform_numbers_are_uniform() -> None:
    numbers = np.array([Noise(s).uniform(p, Stream.ACCEPT) for s in range(100) for p in range(100)])
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    # 19 degrees of freedom: 43.8 is the 0.1 % point.
    assert ((counts - 500) ** 2 / 500).sum() < 43.8


def test_gumbel_numbers_have_the_right_mean_and_spread() -> None:
    numbers = np.concatenate([Noise(1).gumbel(p, Stream.TARGET, TOKENS) for p in range(50)])
    assert abs(numbers.mean() - 0.5772) < 0.03
    assert abs(numbers.std() - np.pi / np.sqrt(6)) < 0.03


def test_neighbouring_positions_are_independent() -> None:
    numbers = np.array([Noise(3).uniform(p, Stream.TARGET) for p in range(5000)])
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.05


def test_the_largest_seed_and_position_are_fine() -> None:
    assert 0 < Noise(2**63 - 1).uniform(2**31, Stream.RESIDUAL) < 1


# The race: the same winner as if every number had been computed.


def shapes(size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(size)
    peaked = np.full(size, -40.0)
    peaked[size // 2] = 0.0
    cut_off = random.standard_normal(size)
    cut_off[size // 3 :] = -np.inf
    found = {
        "flat": np.zeros(size),
        "like a model's": 3 * random.standard_normal(size),
        "wide": 30 * random.standard_normal(size),
        "peaked": peaked,
        "partly impossible": cut_off,
    }
    return {name: scores.astype(np.float32) for name, scores in found.items()}


@pytest.mark.parametrize("size", [3, 260, 8192, 151_936])
def test_the_winner_is_that_of_all(size: int) -> None:
    tokens = np.arange(size)
    for name, scores in shapes(size).items():
        for position in range(50 if size < 10_000 else 5):
            noise = Noise(position)
            perturbed = scores + noise.gumbel(position, Stream.TARGET, tokens)
            assert noise.race(position, Stream.TARGET, scores) == perturbed.argmax(), name


def test_one_token_wins_by_any_length() -> None:
    assert Noise(0).race(0, Stream.TARGET, np.zeros(1, dtype=np.float32)) == 0


def test_winners_are_distributed_as_the_softmax_says() -> None:
    scores = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))
    noise = Noise(11)
    wins = np.bincount([noise.race(p, Stream.TARGET, scores) for p in range(20_000)], minlength=4)
    expected = 20_000 * np.exp(scores)
    # 3 degrees of freedom: 16.3 is the 0.1 % point.
    assert ((wins - expected) ** 2 / expected).sum() < 16.3
