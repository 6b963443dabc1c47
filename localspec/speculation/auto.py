"""The proposer that chooses among the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.proposer import Proposer

ALPHA, START, OFF = 0.1, 0.7, 0.3
"""of the moving average of acceptance: how fast it moves, where it starts, below what it is too low"""
PROBE = 32
"""a proposer that is off is tried again after this many rounds, or it would never come back"""


@dataclass(slots=True)
class _Record:
    """How one member has fared in one request."""

    average: float = START
    rest: int = 0

    def is_due(self) -> bool:
        """Whether to ask it this round."""
        if self.average >= OFF:
            return True
        self.rest += 1
        return self.rest % PROBE == 0

    def learn(self, rate: float) -> None:
        self.average += ALPHA * (rate - self.average)


class Auto(Proposer):
    """Asks its members in order; the first that offers something is taken.

    A member whose drafts are mostly rejected in a request is left alone there, but for a probe now and
    then: drafts that are not accepted cost more than they save.
    """

    name = "auto"

    def __init__(self, members: Sequence[Proposer]) -> None:
        self._members = members
        self._records: dict[int, dict[str, _Record]] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = [NOTHING for _ in asks]
        for member in self._members:
            empty = [
                i
                for i, (ask, draft) in enumerate(zip(asks, drafts, strict=True))
                if not draft.tokens and self._record(ask.request, member.name).is_due()
            ]
            if empty:
                for i, draft in zip(empty, member.propose([asks[i] for i in empty]), strict=True):
                    drafts[i] = draft
        return drafts

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        self._record(request, draft.source).learn(accepted / len(draft.tokens))
        for member in self._members:
            if member.name == draft.source:
                member.observe(request, draft, accepted)

    def stop(self, request: int) -> None:
        self._records.pop(request, None)
        for member in self._members:
            member.stop(request)

    def _record(self, request: int, member: str) -> _Record:
        return self._records.setdefault(request, {}).setdefault(member, _Record())
