"""The end score of a row, and its distance from the threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.toy import ToyLogits
from localspec.speculation.early_end import CLEAR, LEAST, RATHER, EarlyEnd, EndScore
from localspec.speculation.noise import Noise
from localspec.speculation.sampling import Sampler, SamplingParams
from localspec.speculation.verify import ForwardRows, Greedy, Matching, TargetRows, verify

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

    def test_two_best_tokens_bound_it(self) -> None:
        """Also where all others are as probable as they can be, and whichever they are."""
        for row in random_rows(2000):
            best = int(row.argmax())
            margin = float(row[best] - np.delete(row, best).max())
            assert END_SCORE.of(row) <= END_SCORE.at_most(best, margin) + 1e-4
        for margin in (0.0, 1.0, 5.0):
            row = np.zeros(SIZE, dtype=np.float32)
            row[3] = margin
            assert END_SCORE.of(row) <= END_SCORE.at_most(3, margin) + 1e-4

    def test_an_end_token_in_front_is_never_far_from_the_end(self) -> None:
        assert END_SCORE.at_most(5, 30.0) == math.inf

    def test_sizes_of_real_vocabularies(self) -> None:
        """A margin of 10 logits or so is surely no end."""
        for size in (49_152, 151_936):
            end_score = EndScore(range(8), size)
            row = np.zeros(size, dtype=np.float32)
            row[100] = margin = math.log(size * LEAST / (1 - LEAST)) + CLEAR
            assert end_score.at_most(100, margin) <= -CLEAR + 1e-3
            assert end_score.of(row) == pytest.approx(end_score.at_most(100, margin), abs=1e-2)

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

    def test_the_margin_is_what_may_tip_first(self) -> None:
        assert judge(self.SURE).margin(0) == pytest.approx(-END_SCORE.of(self.SURE))
        two = likely(t3=0.48, t4=0.47)
        assert judge(two).margin(0) == pytest.approx(math.log(0.48 / 0.47), abs=1e-4)
        # A tie of two guesses is none: the text ends whichever leads.
        flat = likely(t3=0.1, t4=0.1)
        assert judge(flat).margin(0) == pytest.approx(END_SCORE.of(flat)) and END_SCORE.of(flat) > 0.5

    @pytest.mark.parametrize("penalty", [1.0, 1.3])
    def test_within_the_margin_no_token_changes(self, penalty: float) -> None:
        rng = np.random.default_rng(2)
        sampler = Sampler(SamplingParams(repeat_penalty=penalty), Noise(0), seeded=False, prompt=[3, 4])

        def unsure(row: Row) -> EarlyEnd:
            return EarlyEnd(Matching(rows_of(row), sampler, (), 0), END_SCORE)

        for row in random_rows(1500):
            margin = unsure(row).margin(0)
            x = 0.98 * min(margin, 3.0)
            error = rng.choice([-x / 2, x / 2], SIZE).astype(np.float32)
            assert unsure(row + error).token(0, None) == unsure(row).token(0, None)

    def test_the_smallest_change_that_tips_it_is_no_larger_by_much(self) -> None:
        """The margin is no mere lower bound where the end decides: just beyond it the answer is another."""
        for row in (self.GUESS, likely(t3=0.3)):
            margin, best = judge(row).margin(0), np.arange(SIZE) == 3
            if judge(row).token(0, None) == 3:
                margin = -margin
            assert margin == pytest.approx(END_SCORE.of(row))
            tipped = np.where(best, row + margin * 1.01, row).astype(np.float32)
            assert judge(tipped).token(0, None) != judge(row).token(0, None)

    def test_a_clear_winner_is_not_read(self) -> None:
        class Hidden(ToyLogits):
            def rows(self, start: int, stop: int) -> Row:
                raise AssertionError("read")

        row = np.zeros((1, SIZE), dtype=np.float32)
        row[0, 3] = math.log(RATHER * SIZE) + 2 * CLEAR
        hidden = EarlyEnd(greedy(TargetRows(ForwardRows(Hidden(row)), 0)), END_SCORE)
        assert hidden.token(0, None) == 3 and hidden.margin(0) > CLEAR
        row[0, 3] = 1.0
        with pytest.raises(AssertionError, match="read"):
            hidden = EarlyEnd(greedy(TargetRows(ForwardRows(Hidden(row)), 0)), END_SCORE)
            hidden.token(0, None)
