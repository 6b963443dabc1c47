"""Verification: how far is a draft what the target would have said?

One walk (:func:`verify`) over a draft, with a judge per way of deciding. A judge looks at row i and
says which token stands there; the draft is accepted as long as that is the drafted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Logits
from localspec.speculation.cuts import best, sum_of
from localspec.speculation.draft import Draft
from localspec.speculation.noise import Stream
from localspec.speculation.sampling import Choice, Sampler

Row = NDArray[np.float32]


class ForwardRows:
    """All rows of one forward; what is asked of them is computed once."""

    def __init__(self, logits: Logits) -> None:
        self._logits = logits
        self._rows: dict[int, Row] = {}

    def wait(self, *, whole: bool) -> None:
        """Let a device finish what it has begun; ``whole``: rows are wanted, not their best tokens alone."""
        _ = self.row(0) if whole else self.argmax

    @cached_property
    def argmax(self) -> Sequence[int]:
        return self._logits.argmax()

    @cached_property
    def margins(self) -> Sequence[float]:
        return self._logits.margins()

    @cached_property
    def peaks(self) -> Sequence[float]:
        return self._logits.peaks()

    def row(self, i: int) -> Row:
        if i not in self._rows:
            self._rows[i] = np.asarray(self._logits.rows(i, i + 1)[0])
        return self._rows[i]


class TargetRows:
    """One sequence's share of a forward: row ``i`` judges draft token ``i``, the last is the bonus."""

    def __init__(self, forward: ForwardRows, start: int) -> None:
        self._forward, self._start = forward, start

    def argmax(self, i: int) -> int:
        return self._forward.argmax[self._start + i]

    def margin(self, i: int) -> float:
        return self._forward.margins[self._start + i]

    def is_sound(self, i: int) -> bool:
        """Return whether row ``i``'s logit at its argmax is finite; other logits are not examined."""
        return math.isfinite(self._forward.peaks[self._start + i])

    def row(self, i: int) -> Row:
        return self._forward.row(self._start + i)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``tokens`` is the accepted prefix of the draft, then the correction or bonus token.

    That last one is missing when the draft ended the text (an end token was accepted), and when
    row ``len(tokens)`` is ``doubtful``: too close to call for a wide forward.
    """

    tokens: tuple[int, ...]
    accepted: int
    doubtful: bool = False


class Judge:
    """Says which token stands at a row; the base of the ways to decide."""

    def __init__(self, rows: TargetRows) -> None:
        self.rows = rows

    def token(self, i: int, drafted: int | None) -> int:
        """The token at row ``i``, where ``drafted`` was offered (None after the last draft token)."""
        raise NotImplementedError

    def margin(self, i: int) -> float:
        """How far, in logits, the runner-up at row ``i`` is behind; infinite where chance decides anyway."""
        return float("inf")


def verify(
    draft: Sequence[int],
    judge: Judge,
    *,
    end_tokens: frozenset[int] = frozenset(),
    doubt: Callable[[float], bool] | None = None,
) -> Verdict:
    """Walk the draft; the longest prefix that the judge confirms is accepted.

    ``doubt`` looks at a row's margin and may stop the walk before that row.
    """
    kept: list[int] = []
    for i, drafted in enumerate((*draft, None)):
        if doubt is not None and doubt(judge.margin(i)):
            return Verdict(tuple(kept), i, doubtful=True)
        token = judge.token(i, drafted)
        kept.append(token)
        if token != drafted:
            return Verdict(tuple(kept), i)
        if token in end_tokens:
            return Verdict(tuple(kept), i + 1)
    raise AssertionError("the last row has no drafted token to equal")


class Matching(Judge):
    """The target's own choice at each position: greedy with penalties, or its sample.

    For a one-hot draft this accepts with probability p(t), as rejection sampling would.
    ``position`` is the absolute one of row 0's token.
    """

    def __init__(self, rows: TargetRows, sampler: Sampler, draft: Sequence[int], position: int) -> None:
        super().__init__(rows)
        self.sampler, self.draft, self.position = sampler, draft, position
        self._choices: dict[int, Choice] = {}

    def token(self, i: int, drafted: int | None) -> int:
        if i in self._choices:
            return self._choices[i].token
        return self.sampler.pick(self.rows.row(i), self.draft[:i], self.position + i)

    def margin(self, i: int) -> float:
        if i not in self._choices:
            self._choices[i] = self.sampler.choose(self.rows.row(i), self.draft[:i], self.position + i)
        return self._choices[i].margin


class Greedy(Matching):
    """The most probable token, without moving rows off the device where their best logit is a number."""

    def token(self, i: int, drafted: int | None) -> int:
        return self.rows.argmax(i) if self.rows.is_sound(i) else super().token(i, drafted)

    def margin(self, i: int) -> float:
        return self.rows.margin(i) if self.rows.is_sound(i) else super().margin(i)


class Rejection(Judge):
    """Rejection sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

    Accept t with probability ``min(1, p(t)/q(t))``, else draw from ``norm(max(0, p − q))``: what
    comes out is distributed as p, whatever q was.
    """

    def __init__(self, rows: TargetRows, sampler: Sampler, draft: Draft, position: int) -> None:
        super().__init__(rows)
        self.sampler, self.draft, self.position = sampler, draft, position

    def token(self, i: int, drafted: int | None) -> int:
        sampler, draft, position = self.sampler, self.draft, self.position + i
        p = sampler.distribution(self.rows.row(i), draft.tokens[:i])
        if drafted is None or draft.q is None:
            return p.sample(sampler.noise, position, Stream.TARGET)
        q = draft.q[i]
        if sampler.noise.uniform(position, Stream.ACCEPT) * q.of(drafted) < p.of(drafted):
            return drafted
        return p.minus(q).sample(sampler.noise, position, Stream.RESIDUAL)


class Threshold(Matching):
    """Lossy: a drafted token stands if the target gives it at least probability ``tau``."""

    def __init__(self, matching: Matching, tau: float) -> None:
        super().__init__(matching.rows, matching.sampler, matching.draft, matching.position)
        self.tau = tau

    def token(self, i: int, drafted: int | None) -> int:
        if drafted is not None:
            p = self.sampler.distribution(self.rows.row(i), self.draft[:i])
            if p.of(drafted) >= self.tau:
                return drafted
        return super().token(i, drafted)


def judge_for(rows: TargetRows, sampler: Sampler, draft: Draft, position: int, tau: float | None) -> Judge:
    """The judge a request asks for; ``position`` is the absolute one of row 0's token."""
    params = sampler.params
    if tau is not None:
        return Threshold(Matching(rows, sampler, draft.tokens, position), tau)
    if params.takes_argmax:
        return Greedy(rows, sampler, draft.tokens, position)
    if draft.q is not None and not sampler.seeded and not params.greedy:
        return Rejection(rows, sampler, draft, position)
    return Matching(rows, sampler, draft.tokens, position)


def log_probability(row: Row, token: int) -> float:
    """The log-probability of ``token`` under the plain softmax of ``row``."""
    return float(row[token]) - _log_total(row)


def most_probable(row: Row, count: int) -> tuple[tuple[int, float], ...]:
    """The most probable tokens of ``row``, falling, with their log-probabilities under its plain softmax."""
    if count == 0:
        return ()
    total, ids = _log_total(row), best(row, min(count, len(row))).tolist()
    return tuple((i, float(row[i]) - total) for i in sorted(ids, key=lambda i: (-row[i], i)))


def _log_total(row: Row) -> float:
    """The logarithm of the sum of all exponentials."""
    top = float(row.max())
    return top + math.log(sum_of(np.exp(row - np.float32(top))))
