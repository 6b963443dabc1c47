"""The end score of a row, and its distance from the threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.toy import ToyLogits
from localspec.speculation.early_end import EarlyEnd, EndScore
from localspec.speculation.noise import Noise
from localspec.speculation.sampling import Sampler, SamplingParams
from localspec.speculation.verify import ForwardRows, Greedy, TargetRows, verify

SIZE = 12
ENDS = frozenset({0, 5})
END_SCORE = EndScore(ENDS, SIZE)
NEVER = -1e9
Row = NDArray[np.float32]


def likely(**shares: float) -> Row:
    """A row by the shares of some tokens (``t3=0.5``); the rest is spread over the other texts."""
    named = {int(name[1:]): share for name, share in shares.items()}
    others = [token for token in range(SIZE) if token not in ENDS and token not in named]
    row = np.full(SIZE, NEVER, dtype=np.float32)
    for token, share in named.items():
        row[token] = math.log(share) if share else NEVER
    row[others] = math.log((1 - sum(named.values())) / len(others))
    return row


def rows_of(*rows: Row) -> TargetRows:
    return TargetRows(ForwardRows(ToyLogits(np.array(rows, dtype=np.float32))), 0)


def greedy(rows: TargetRows) -> Greedy:
    return Greedy(rows, Sampler(SamplingParams(), Noise(0), seeded=False), (), 0)


def judge(*rows: Row, end_score: EndScore = END_SCORE) -> EarlyEnd:
    return EarlyEnd(greedy(rows_of(*rows)), end_score)


def random_rows(n: int, size: int = SIZE) -> list[Row]:
    """Of every sharpness, some with their ends raised."""
    rng = np.random.default_rng(n)
    rows = [rng.standard_normal(size) * rng.choice([0.1, 1.0, 3.0, 8.0]) for _ in range(n)]
    for row in rows[::2]:
        row[0] += rng.uniform(-6, 6)
    return [row.astype(np.float32) for row in rows]


class TestEndScore:
    @pytest.mark.parametrize(("best", "ends"), [(0.19, True), (0.21, False), (0.9, False)])
    def test_a_best_token_of_less_than_a_fifth_is_a_guess(self, best: float, ends: bool) -> None:
        assert (END_SCORE.of(likely(t3=best)) > 0) is ends

    @pytest.mark.parametrize(("end", "ends"), [(0.9, True), (0.07, True), (0.055, False), (0.0, False)])
    def test_the_end_needs_less_than_text(self, end: float, ends: bool) -> None:
        assert (END_SCORE.of(likely(t0=end / 2, t5=end / 2, t3=0.95 * (1 - end))) > 0) is ends

    def test_it_is_a_distance_in_logits(self) -> None:
        row = likely(t3=0.5)
        others = np.arange(SIZE) != 3
        row[others] += -END_SCORE.of(row) - 0.01
        assert -0.02 < END_SCORE.of(row) < 0
        row[others] += 0.02
        assert 0 < END_SCORE.of(row) < 0.02

    def test_it_moves_no_more_than_two_tokens_move_against_each_other(self) -> None:
        rng, most = np.random.default_rng(1), 0.0
        for row in random_rows(2000):
            x = float(rng.choice([0.01, 0.3, 2.0]))
            error = rng.choice([-x / 2, x / 2], SIZE).astype(np.float32)
            moved = abs(END_SCORE.of(row + error) - END_SCORE.of(row))
            assert moved <= x + 1e-4
            most = max(most, moved / x)
        assert most > 0.9, "and it can move so much"

    def test_tokens_that_no_row_has_are_left_out(self) -> None:
        assert EndScore({3, SIZE, SIZE + 7}, SIZE).end_tokens == {3}

    def test_nothing_but_the_end_and_nothing_but_one_text(self) -> None:
        for token, ends in ((0, True), (3, False)):
            row = np.full(SIZE, NEVER, dtype=np.float32)
            row[token] = 0.0
            assert (END_SCORE.of(row) > 10) is ends and math.isfinite(END_SCORE.of(row))


class TestEarlyEnd:
    SURE, GUESS = likely(t3=0.9), likely(t3=0.15)

    def test_the_text_ends_at_the_first_guess_whatever_was_drafted(self) -> None:
        rows = (self.SURE, self.GUESS, self.SURE, self.SURE)
        for draft in ((3, 3, 3), (3, 4, 3), (3, 5, 3), (3, 0, 3)):
            said = verify(draft, judge(*rows), end_tokens=ENDS).tokens
            assert said[0] == 3 and said[1] in ENDS and len(said) == 2
        assert verify((4,), judge(*rows), end_tokens=ENDS).tokens == (3,)
