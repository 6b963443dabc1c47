"""Randomness depends on seed, position and stream, and looks random."""

from __future__ import annotations

import numpy as np

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
