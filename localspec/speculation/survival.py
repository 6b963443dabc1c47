"""The probability that a proposer's tokens are right, given how sure it was of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BUCKETS = 16
START = 0.7
"""probability that a drafted token is right where nothing is known"""
PRIOR = 8.0
"""weight of the prior, in tokens"""
SHARE = 6.0
"""the most that a request's tokens of one evidence weigh together, in tokens: a long text is one sample"""
MEMORY = 200.0
"""weight of all requests in one evidence, in tokens: older requests fade"""
FADE = 0.02
"""share by which averages return to the prior with each request that compared no token: a draft model that
was of no use is not called, and could not show that it is of use for other texts"""
CAUTION = -0.2
"""log-odds of a request's tokens, relative to the average request, before any was compared"""
START_FACTOR = math.exp(CAUTION)
STEP = 0.5
"""change of a request's log-odds by a token that was right against all odds"""


@dataclass(slots=True)
class _Local:
    """The record of one request: a shift of all log-odds, and its counts by evidence."""

    shift: float = CAUTION
    factor: float = START_FACTOR
    """factor of the odds: the shift's exponential"""
    right: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    tried: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)


class Survival:
    """The probability that a drafted token is right once all before it were, by its evidence.

    Per evidence it keeps the average over past requests, and per request one shift of the log-odds, because
    texts differ more than evidence does: in one that repeats itself every match is worth more. The
    shift is the intercept of a logistic regression, learnt token by token, each moving it by the same share
    of its surprise: texts change, so that the hundredth counts for as much as the first.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = [PRIOR * prior[min(i, len(prior) - 1)] for i in range(BUCKETS)]
        self._right, self._all = [*self._prior], [PRIOR] * BUCKETS
        self._requests: dict[int, _Local] = {}

    def rate(self, request: int, evidence: int) -> float:
        """The probability that a token with this evidence is right."""
        return self._rate(evidence, self._factor(request))

    def _factor(self, request: int) -> float:
        local = self._requests.get(request)
        return START_FACTOR if local is None else local.factor

    def _rate(self, evidence: int, factor: float) -> float:
        right, tried = self._right[evidence], self._all[evidence]
        # A quarter of a token is added on both sides: no average is certain.
        odds = (right + 0.25) / (tried - right + 0.25) * factor
        return odds / (1.0 + odds)

    def curve(self, request: int, evidence: Sequence[int]) -> list[float]:
        """The probability that the first 1, 2, … tokens of a draft are all right."""
        factor = self._factor(request)
        known: dict[int, float] = {}
        curve, alive = [], 1.0
        for bucket in evidence:
            rate = known.get(bucket)
            if rate is None:
                rate = known[bucket] = self._rate(bucket, factor)
            alive *= rate
            curve.append(alive)
        return curve

    def learn(self, request: int, evidence: int, *, right: bool) -> None:
        """Learn that a token with this evidence was right, or was not."""
        local = self._requests.get(request)
        if local is None:
            local = self._requests[request] = _Local()
        local.right[evidence] += right
        local.tried[evidence] += 1.0
        expected = self._rate(evidence, local.factor)
        local.shift += STEP * (right - expected)
        local.factor = math.exp(local.shift)

    def stop(self, request: int) -> None:
        """Add the record of a request that has ended to the average; without one, the average fades."""
        local = self._requests.pop(request, None)
        if local is None:
            for i, right in enumerate(self._prior):
                self._right[i] += FADE * (right - self._right[i])
                self._all[i] += FADE * (PRIOR - self._all[i])
            return
        for i, tried in enumerate(local.tried):
            if not tried:
                continue
            weight = min(1.0, SHARE / tried)
            self._right[i] += weight * local.right[i]
            self._all[i] += weight * tried
            if self._all[i] > MEMORY:
                self._right[i] /= 2
                self._all[i] /= 2

    def state(self) -> dict[str, Any]:
        """The averages, as JSON can hold them."""
        return {"right": self._right, "all": self._all}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a :meth:`state`. Raises ValueError, KeyError or TypeError for anything else."""
        right, tried = [float(x) for x in state["right"]], [float(x) for x in state["all"]]
        if not len(right) == len(tried) == BUCKETS:
            raise ValueError(f"{BUCKETS} buckets are needed")
        if not all(0.0 <= r <= t < 1e6 and t > 0.0 for r, t in zip(right, tried, strict=True)):
            raise ValueError("more tokens right than tried")
        self._right, self._all = right, tried


class Calibration:
    """The survival tables of all proposers of an engine, shared by its controllers."""

    def __init__(self) -> None:
        self._tables: dict[str, Survival] = {}
        self._restored: dict[str, Mapping[str, Any]] = {}

    def by_evidence(self, proposer: str, prior: Sequence[float]) -> Survival:
        """The table of a proposer's tokens by their evidence."""
        return self._table(proposer, prior)

    def by_position(self, proposer: str) -> Survival:
        """The table of a proposer's first, second, … tokens, for use before they are drafted."""
        return self._table(f"{proposer}, by position", (START,))

    def state(self) -> dict[str, Any]:
        """The state of all tables, as JSON can hold it."""
        return self._restored | {name: table.state() for name, table in self._tables.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a :meth:`state`. Raises ValueError, KeyError or TypeError for anything else."""
        for name, values in state.items():
            Survival((START,)).restore(values)
            if name in self._tables:
                self._tables[name].restore(values)
        self._restored = dict(state)

    def _table(self, name: str, prior: Sequence[float]) -> Survival:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Survival(prior)
            if name in self._restored:
                table.restore(self._restored[name])
        return table
