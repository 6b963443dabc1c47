"""Verification: accepted tokens, the distribution of emitted ones, and where an unsure text ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.speculation.noise import Noise, NoiseStream
from localspec.speculation.proposer import Draft
from localspec.speculation.sampling import Distribution, Sampler, SamplingParams
from localspec.speculation.verify import (
    EarlyEnd,
    EndScore,
    ForwardRows,
    Greedy,
    Judge,
    TargetRows,
    judge_for,
    log_probability,
    most_probable,
    verify,
)
from tests.toy import ToyLogits

DRAWS = 100_000
# 99.9 % points of chi-square, by degrees of freedom.
LIMIT = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 8: 26.12}
WARM = SamplingParams(temperature=1.0)


def table(*rows: Sequence[float]) -> TargetRows:
    return TargetRows(ForwardRows(ToyLogits(np.log(np.array(rows, dtype=np.float32)))), 0)


def one_hot(size: int, *tokens: int) -> TargetRows:
    return table(*[[0.9 if i == token else 0.1 / size for i in range(size)] for token in tokens])


def greedy_sampler() -> Sampler:
    return Sampler(SamplingParams(), Noise(0), seeded=False)


def chi_square(counts: NDArray[np.int64], p: Sequence[float]) -> float:
    expected = np.array(p) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def judge(rows: TargetRows, draft: Draft) -> Judge:
    return judge_for(rows, greedy_sampler(), draft, 0)


def test_no_row_behind_a_wrong_token_is_read() -> None:
    class Counted(ToyLogits):
        def choice(self, i: int) -> int | None:
            read.append(i)
            return super().choice(i)

    read: list[int] = []
    rows = TargetRows(ForwardRows(Counted(np.eye(6, dtype=np.float32))), 0)
    draft = Draft((0, 1, 0, 3), "lookup")
    assert verify(draft.tokens, judge(rows, draft)).accepted == 2 and read == [0, 1, 2]


class TestGreedy:
    @pytest.mark.parametrize(
        ("draft", "tokens", "accepted"),
        [((1, 2, 3), (1, 2, 3, 4), 3), ((1, 2, 0), (1, 2, 3), 2), ((0, 2, 3), (1,), 0), ((), (1,), 0)],
    )
    def test_the_longest_right_prefix_and_one_more(
        self, draft: tuple[int, ...], tokens: tuple[int, ...], accepted: int
    ) -> None:
        verdict = verify(draft, judge(one_hot(5, 1, 2, 3, 4), Draft(draft, "x")))
        assert (verdict.tokens, verdict.accepted) == (tokens, accepted)

    def test_an_accepted_end_token_is_the_last(self) -> None:
        verdict = verify(
            (1, 2, 3), judge(one_hot(5, 1, 2, 3, 4), Draft((1, 2, 3), "x")), end_tokens=frozenset({2})
        )
        assert (verdict.tokens, verdict.accepted) == ((1, 2), 2)

    def test_penalties_count_the_draft_before_each_row(self) -> None:
        """Token 1 leads by less than one repetition costs: it may stand once, then 2 must follow."""
        rows = table(*[[0.1, 0.5, 0.4]] * 4)
        sampler = Sampler(SamplingParams(frequency_penalty=1.0), Noise(0), seeded=False)
        draft = Draft((1, 2, 1), "x")
        verdict = verify(draft.tokens, judge_for(rows, sampler, draft, 0))
        assert verdict.tokens == (1, 2, 1, 2)


def distribution(p: Sequence[float]) -> Distribution:
    return Distribution(np.arange(len(p), dtype=np.int64), np.array(p))


P, Q = [0.4, 0.3, 0.3], [0.7, 0.2, 0.1]


class Different:
    """A mask: each token differs from the one before."""

    def mask_allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
        return np.array([self.allows(token, drafted) for token in range(3)])

    def allows(self, token: int, drafted: Sequence[int]) -> bool:
        return list(drafted[-1:]) != [token]

    def only(self, drafted: Sequence[int]) -> int | None:
        return None


def first_tokens(
    rows: TargetRows,
    drafts: Distribution,
    *,
    draws: int,
    sampler: Sampler | None = None,
    keeps: Callable[[int, int], bool] = lambda position, token: True,
) -> tuple[NDArray[np.int64], float]:
    """Draft one token ``draws`` times, unless ``keeps`` drops it: how often each came first, and the share
    of accepted ones."""
    sampler = sampler or Sampler(WARM, Noise(42), seeded=False)
    counts, accepted = np.zeros(len(drafts.tokens), dtype=np.int64), 0
    for position in range(draws):
        token = drafts.sample(sampler.noise, position, NoiseStream.DRAFT)
        draft = Draft((token,), "draft", (drafts,)) if keeps(position, token) else Draft((), "none")
        verdict = verify(draft.tokens, judge_for(rows, sampler, draft, position))
        counts[verdict.tokens[0]] += 1
        accepted += verdict.accepted
    return counts, accepted / draws


class TestRejectionSampling:
    @pytest.mark.parametrize(
        ("p", "q", "draws"),
        [
            pytest.param([0.4, 0.3, 0.3], [0.7, 0.2, 0.1], DRAWS, marks=pytest.mark.slow),
            ([0.4, 0.3, 0.3], [0.7, 0.2, 0.1], DRAWS // 6),
            pytest.param([0.1, 0.9], [0.9, 0.1], DRAWS // 6, marks=pytest.mark.slow),
            ([0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01], DRAWS // 6),
            pytest.param([0.5, 0.5], [0.5, 0.5], DRAWS // 6, marks=pytest.mark.slow),
        ],
    )
    def test_the_first_token_is_distributed_as_the_target(
        self, p: list[float], q: list[float], draws: int
    ) -> None:
        counts, accepted = first_tokens(table(p, p), distribution(q), draws=draws)
        assert chi_square(counts, p) < LIMIT[len(p) - 1]
        overlap = sum(min(a, b) for a, b in zip(p, q, strict=True))
        assert abs(accepted - overlap) < 0.01

    def test_a_biased_token_is_distributed_as_the_biased_target(self) -> None:
        """Bias before temperature, on the target's row and on what the draft was drawn from alike."""
        params = SamplingParams(temperature=0.5, logit_bias=((0, -1.0), (2, 0.5), (7, 9.0)))
        sampler = Sampler(params, Noise(4), seeded=False)
        weights = (np.array(P) * np.exp([-1.0, 0.0, 0.5])) ** 2
        drafts = sampler.distribution(np.log(Q).astype(np.float32), ())
        counts, _ = first_tokens(table(P, P), drafts, draws=DRAWS // 8, sampler=sampler)
        assert chi_square(counts, list(weights / weights.sum())) < LIMIT[2]

    def test_masked_tokens_are_distributed_as_the_masked_target(self) -> None:
        """The mask is on both sides, before cuts and normalisation: pairs of tokens, the second of which may
        not be the first again."""
        sampler = Sampler(WARM, Noise(5), seeded=False, mask=Different())
        rows, counts = table(P, P, [1.0, 1.0, 1.0]), np.zeros(9, dtype=np.int64)
        for position in range(0, 3 * (DRAWS // 8), 3):
            tokens, q = list[int](), list[Distribution]()
            for i in range(2):
                q.append(sampler.distribution(np.log(Q).astype(np.float32), tokens))
                tokens.append(q[-1].sample(sampler.noise, position + i, NoiseStream.DRAFT))
            draft = Draft(tuple(tokens), "draft", tuple(q))
            first, *rest = verify(draft.tokens, judge_for(rows, sampler, draft, position)).tokens
            target = sampler.distribution(rows.row(1), [first])
            second = rest[0] if rest else target.sample(sampler.noise, position + 1, NoiseStream.TARGET)
            counts[3 * first + second] += 1
        expected = [a * b / (1 - a) if i != j else 0.0 for i, a in enumerate(P) for j, b in enumerate(P)]
        allowed = [i for i in range(9) if expected[i]]
        assert counts.sum() == counts[allowed].sum()
        assert chi_square(counts[allowed], [expected[i] for i in allowed]) < LIMIT[5]

    def test_two_tokens_in_a_row_are_distributed_as_the_target(self) -> None:
        """Pairs, drafted together, from rows that depend on the first token: 9 cells."""
        p = [[0.4, 0.3, 0.3], [0.2, 0.5, 0.3]]
        q = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]
        rows = table(*p, [1.0, 1e-9, 1e-9])
        noise = Noise(9)
        sampler, qs = Sampler(WARM, noise, seeded=False), tuple(distribution(row) for row in q)
        counts = np.zeros(9, dtype=np.int64)
        for n in range(DRAWS // 8):
            position = 3 * n
            tokens = tuple(d.sample(noise, position + i, NoiseStream.DRAFT) for i, d in enumerate(qs))
            draft = Draft(tokens, "draft", qs)
            first, *rest = verify(tokens, judge_for(rows, sampler, draft, position)).tokens
            # After a rejection at the first place, the second comes from a round of its own.
            second = rest[0] if rest else distribution(p[1]).sample(noise, position + 1, NoiseStream.TARGET)
            counts[3 * first + second] += 1
        assert chi_square(counts, [a * b for a in p[0] for b in p[1]]) < LIMIT[8]

    def test_a_draft_stopped_by_what_is_known_before_drawing_stays_unbiased(self) -> None:
        """The decision to draft depends on the position, never on the token drawn."""
        counts, _ = first_tokens(
            table(P, P), distribution(Q), draws=DRAWS // 8, keeps=lambda position, token: position % 2 == 0
        )
        assert chi_square(counts, P) < LIMIT[2]


class TestMatching:
    P = (0.1, 0.4, 0.2, 0.3)

    @pytest.mark.parametrize("drafted", [0, 1, 2, 3])
    def test_a_one_hot_draft_is_lossless_and_accepted_with_its_probability(self, drafted: int) -> None:
        rows, sampler = table(self.P, self.P), Sampler(WARM, Noise(3), seeded=False)
        counts, accepted, draft = np.zeros(4, dtype=np.int64), 0, Draft((drafted,), "prompt-lookup")
        for position in range(0, DRAWS // 8, 2):
            verdict = verify(draft.tokens, judge_for(rows, sampler, draft, position))
            counts[verdict.tokens[0]] += 1
            accepted += verdict.accepted
        assert chi_square(counts, self.P) < LIMIT[3]
        assert abs(accepted / counts.sum() - self.P[drafted]) < 0.01

    @pytest.mark.parametrize("draft", [(), (0,), (1, 2), (3, 3, 3)])
    def test_under_a_seed_the_text_does_not_depend_on_the_draft(self, draft: tuple[int, ...]) -> None:
        rows = table(*[self.P] * 4)
        plain = [Sampler(WARM, Noise(8), seeded=True).pick(rows.row(0), (), 100 + i) for i in range(4)]
        sampler = Sampler(WARM, Noise(8), seeded=True)
        q = tuple(distribution([0.25] * 4) for _ in draft)
        offered = Draft(draft, "draft", q)
        verdict = verify(draft, judge_for(rows, sampler, offered, 100))
        assert list(verdict.tokens) == plain[: len(verdict.tokens)]

    def test_a_draft_drawn_with_the_same_numbers_is_met_more_often(self) -> None:
        """Common random numbers: two close distributions mostly pick the same token."""
        p, q = distribution(self.P), distribution([0.15, 0.35, 0.2, 0.3])
        noise = Noise(6)
        streams = (NoiseStream.TARGET, NoiseStream.DRAFT)
        drawn = [p.sample(noise, n, NoiseStream.TARGET) for n in range(4000)]
        same = [np.mean([q.sample(noise, n, s) == drawn[n] for n in range(4000)]) for s in streams]
        assert same[0] > 0.85 and same[1] < 0.4


def test_log_probability() -> None:
    row = np.log(np.array([0.25, 0.75], dtype=np.float32)) + 3
    assert abs(log_probability(row, 1) - np.log(0.75)) < 1e-6


def test_the_most_probable_tokens_fall_and_have_the_plain_probabilities() -> None:
    row = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32)) + 3
    found = most_probable(row, 3)
    assert [token for token, _ in found] == [1, 3, 2]
    assert all(logprob == log_probability(row, token) for token, logprob in found)
    assert len(most_probable(row, 9)) == 4 and most_probable(row, 0) == ()


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
    return Greedy(rows, greedy_sampler(), Draft((), "x"), 0)


def ending(*rows: Row, end_score: EndScore = END_SCORE) -> EarlyEnd:
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
            said = verify(draft, ending(*rows), end_tokens=ENDS).tokens
            assert said[0] == 3 and said[1] in ENDS and len(said) == 2
        assert verify((4,), ending(*rows), end_tokens=ENDS).tokens == (3,)
