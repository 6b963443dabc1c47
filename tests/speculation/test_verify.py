"""Verification: accepted tokens, and that emitted ones have the target's distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.toy import ToyLogits
from localspec.speculation.draft import Draft
from localspec.speculation.noise import Noise, Stream
from localspec.speculation.sampling import Distribution, Sampler, SamplingParams
from localspec.speculation.verify import (
    ForwardRows,
    Judge,
    TargetRows,
    judge_for,
    log_probability,
    most_probable,
    verify,
)

DRAWS = 100_000
# 99.9 % points of chi-square, by degrees of freedom.
LIMIT = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 8: 26.12}
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
    return judge_for(rows, greedy_sampler(), draft, 0, None)


class TestGreedy:
    @pytest.mark.parametrize(
        ("draft", "tokens", "accepted"),
        [
            ((1, 2, 3), (1, 2, 3, 4), 3),
            ((1, 2, 0), (1, 2, 3), 2),
            ((0, 2, 3), (1,), 0),
            ((), (1,), 0),
        ],
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
        verdict = verify(draft.tokens, judge_for(rows, sampler, draft, 0, None))
        assert verdict.tokens == (1, 2, 1, 2)


class TestThreshold:
    def test_a_likely_enough_token_stands(self) -> None:
        rows = table([0.5, 0.35, 0.15], [0.5, 0.35, 0.15])
        for tau, expected in ((0.3, (1, 0)), (0.4, (0,))):
            verdict = verify((1,), judge_for(rows, greedy_sampler(), Draft((1,), "x"), 0, tau))
            assert verdict.tokens == expected


def distribution(p: Sequence[float]) -> Distribution:
    return Distribution(np.arange(len(p), dtype=np.int64), np.array(p))


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
        rows, drafts = table(p, p), distribution(q)
        sampler = Sampler(WARM, Noise(42), seeded=False)
        counts = np.zeros(len(p), dtype=np.int64)
        accepted = 0
        for position in range(draws):
            token = drafts.sample(sampler.noise, position, Stream.DRAFT)
            draft = Draft((token,), "draft", (drafts,))
            verdict = verify(draft.tokens, judge_for(rows, sampler, draft, position, None))
            counts[verdict.tokens[0]] += 1
            accepted += verdict.accepted
        assert chi_square(counts, p) < LIMIT[len(p) - 1]
        overlap = sum(min(a, b) for a, b in zip(p, q, strict=True))
        assert abs(accepted / draws - overlap) < 0.01

    def test_a_biased_token_is_distributed_as_the_biased_target(self) -> None:
        """Bias before temperature, on the target's row and on what the draft was drawn from alike."""
        params = SamplingParams(temperature=0.5, logit_bias=((0, -1.0), (2, 0.5), (7, 9.0)))
        sampler = Sampler(params, Noise(4), seeded=False)
        p, q = [0.4, 0.3, 0.3], [0.7, 0.2, 0.1]
        rows = table(p, p)
        weights = (np.array(p) * np.exp([-1.0, 0.0, 0.5])) ** 2
        expected = weights / weights.sum()
        drafts = sampler.distribution(np.log(q).astype(np.float32), ())
        counts = np.zeros(3, dtype=np.int64)
        for position in range(DRAWS // 8):
            token = drafts.sample(sampler.noise, position, Stream.DRAFT)
            draft = Draft((token,), "draft", (drafts,))
            counts[verify((token,), judge_for(rows, sampler, draft, position, None)).tokens[0]] += 1
        assert chi_square(counts, list(expected)) < LIMIT[2]

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
            tokens = tuple(d.sample(noise, position + i, Stream.DRAFT) for i, d in enumerate(qs))
            draft = Draft(tokens, "draft", qs)
            first, *rest = verify(tokens, judge_for(rows, sampler, draft, position, None)).tokens
            # After a rejection at the first place, the second comes from a round of its own.
            second = rest[0] if rest else distribution(p[1]).sample(noise, position + 1, Stream.TARGET)
            counts[3 * first + second] += 1
        assert chi_square(counts, [a * b for a in p[0] for b in p[1]]) < LIMIT[8]

    def test_a_draft_stopped_by_what_is_known_before_drawing_stays_unbiased(self) -> None:
        """The decision to draft position i depends on its row's best q, never on the token drawn."""
        p, q = [0.4, 0.3, 0.3], [0.7, 0.2, 0.1]
        rows, drafts, sampler = table(p, p), distribution(q), Sampler(WARM, Noise(5), seeded=False)
        counts = np.zeros(3, dtype=np.int64)
        for position in range(DRAWS // 8):
            drafted = max(q) >= 0.5 or position % 2 == 0
            token = drafts.sample(sampler.noise, position, Stream.DRAFT)
            draft = Draft((token,), "draft", (drafts,)) if drafted else Draft((), "none")
            counts[verify(draft.tokens, judge_for(rows, sampler, draft, position, None)).tokens[0]] += 1
        assert chi_square(counts, p) < LIMIT[2]

    def test_dropping_a_drawn_token_for_its_small_q_would_be_biased(self) -> None:
        """The bug this library must not have, to show that the test above can fail."""
        p, q = [0.4, 0.3, 0.3], [0.7, 0.2, 0.1]
        rows, drafts, sampler = table(p, p), distribution(q), Sampler(WARM, Noise(5), seeded=False)
        counts = np.zeros(3, dtype=np.int64)
        for position in range(DRAWS // 8):
            token = drafts.sample(sampler.noise, position, Stream.DRAFT)
            kept = q[token] >= 0.15
            draft = Draft((token,), "draft", (drafts,)) if kept else Draft((), "none")
            counts[verify(draft.tokens, judge_for(rows, sampler, draft, position, None)).tokens[0]] += 1
        assert chi_square(counts, p) > 100


class TestMatching:
    P = (0.1, 0.4, 0.2, 0.3)

    @pytest.mark.parametrize("drafted", [0, 1, 2, 3])
    def test_a_one_hot_draft_is_lossless_and_accepted_with_its_probability(self, drafted: int) -> None:
        rows, sampler = table(self.P, self.P), Sampler(WARM, Noise(3), seeded=False)
        counts, accepted, draft = np.zeros(4, dtype=np.int64), 0, Draft((drafted,), "prompt-lookup")
        for position in range(0, DRAWS // 8, 2):
            verdict = verify(draft.tokens, judge_for(rows, sampler, draft, position, None))
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
        verdict = verify(draft, judge_for(rows, sampler, offered, 100, None))
        assert list(verdict.tokens) == plain[: len(verdict.tokens)]

    def test_a_draft_drawn_with_the_same_numbers_is_met_more_often(self) -> None:
        """Common random numbers: two close distributions mostly pick the same token."""
        p, q = distribution(self.P), distribution([0.15, 0.35, 0.2, 0.3])
        noise = Noise(6)
        streams = (Stream.TARGET, Stream.DRAFT)
        same = [np.mean([_equal(p, q, noise, n, s) for n in range(4000)]) for s in streams]
        assert same[0] > 0.85 and same[1] < 0.4


def _equal(p: Distribution, q: Distribution, noise: Noise, n: int, stream: Stream) -> bool:
    return p.sample(noise, n, Stream.TARGET) == q.sample(noise, n, stream)


def test_log_probability() -> None:
    row = np.log(np.array([0.25, 0.75], dtype=np.float32)) + 3
    assert abs(log_probability(row, 1) - np.log(0.75)) < 1e-6


def test_the_most_probable_tokens_fall_and_have_the_plain_probabilities() -> None:
    row = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32)) + 3
    found = most_probable(row, 3)
    assert [token for token, _ in found] == [1, 3, 2]
    assert all(logprob == log_probability(row, token) for token, logprob in found)
    assert len(most_probable(row, 9)) == 4 and most_probable(row, 0) == ()
