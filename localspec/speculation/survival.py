"""How often a proposer turns out right, given how sure it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BUCKETS = 16
LOCAL = 6.0
"""how many tokens of a request weigh as much as everything learnt before it"""
MEMORY = 400.0
"""older tokens fade: no bucket remembers more than about so many"""
START = 0.7
"""how often a drafted token is right where nothing is known"""
PRIOR = 3.0
"""how many tokens the prior weighs"""


class Survival:
    """The probability that a drafted token is right once all before it were, by its evidence.

    Beta estimates with decay: the engine's own per bucket, and on top of it the request's, because a
    text that repeats itself and one that does not differ more than proposers do.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = [prior[min(i, len(prior) - 1)] for i in range(BUCKETS)]
        self._right = [PRIOR * p for p in self._prior]
        self._all = [PRIOR] * BUCKETS
        self._requests: dict[int, tuple[list[float], list[float]]] = {}

    def rate(self, request: int, evidence: int) -> float:
        """The probability that a token with this evidence is right."""
        rate = self._right[evidence] / self._all[evidence]
        local = self._requests.get(request)
        if local is None:
            return rate
        right, tried = local
        return (LOCAL * rate + right[evidence]) / (LOCAL + tried[evidence])

    def curve(self, request: int, evidence: Sequence[int]) -> list[float]:
        """The probability that the first 1, 2, … tokens of a draft are all right."""
        known: dict[int, float] = {}
        curve, alive = [], 1.0
        for bucket in evidence:
            rate = known.get(bucket)
            if rate is None:
                rate = known[bucket] = self.rate(request, bucket)
            alive *= rate
            curve.append(alive)
        return curve

    def learn(self, request: int, evidence: int, *, right: bool) -> None:
        """A token with this evidence was right, or not."""
        self._right[evidence] += right
        self._all[evidence] += 1.0
        if self._all[evidence] > MEMORY:
            self._right[evidence] /= 2
            self._all[evidence] /= 2
        local = self._requests.get(request)
        if local is None:
            local = self._requests[request] = ([0.0] * BUCKETS, [0.0] * BUCKETS)
        local[0][evidence] += right
        local[1][evidence] += 1.0

    def stop(self, request: int) -> None:
        """The request has ended."""
        self._requests.pop(request, None)

    def state(self) -> dict[str, Any]:
        """What was learnt, as JSON can hold it."""
        return {"right": self._right, "all": self._all}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave. Raises ValueError, KeyError or TypeError for anything else."""
        right, tried = [float(x) for x in state["right"]], [float(x) for x in state["all"]]
        if not len(right) == len(tried) == BUCKETS:
            raise ValueError(f"{BUCKETS} buckets are needed")
        if not all(0.0 <= r <= t < 1e6 and t > 0.0 for r, t in zip(right, tried, strict=True)):
            raise ValueError("more tokens right than tried")
        self._right, self._all = right, tried


class Calibration:
    """What is known of all proposers of an engine, shared by whoever decides with it."""

    def __init__(self) -> None:
        self._tables: dict[str, Survival] = {}
        self._restored: dict[str, Mapping[str, Any]] = {}

    def by_evidence(self, proposer: str, prior: Sequence[float]) -> Survival:
        """How often its tokens are right, by what it knew."""
        return self._table(proposer, prior)

    def by_position(self, proposer: str) -> Survival:
        """How often the first, second, … token of its drafts are right, before it has looked."""
        return self._table(f"{proposer}, by position", (START,))

    def stop(self, request: int) -> None:
        """The request has ended."""
        for table in self._tables.values():
            table.stop(request)

    def state(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return self._restored | {name: table.state() for name, table in self._tables.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave. Raises ValueError, KeyError or TypeError for anything else."""
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
