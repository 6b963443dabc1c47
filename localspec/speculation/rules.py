"""The plain rules people know: a fixed length, and a length by a moving average of acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.proposer import Proposer

PROBE = 32
"""a proposer that is off is tried again after this many rounds, or it would never come back"""
START = 0.7


class Fixed(Proposer):
    """Asks its members in order, always for as many tokens as it is asked for, up to ``k``; the first
    that offers something is taken."""

    name = "auto"

    def __init__(self, members: Sequence[Proposer], k: int) -> None:
        self._members = members
        self._k = k

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = [NOTHING for _ in asks]
        for member in self._members:
            empty = [i for i, draft in enumerate(drafts) if not draft.tokens]
            if not empty:
                break
            shortened = [
                asks[i]._replace(k=self._length(asks[i].request, member.name, min(asks[i].k, self._k)))
                for i in empty
            ]
            for i, draft in zip(empty, member.propose(shortened), strict=True):
                drafts[i] = draft
        return drafts

    def _length(self, request: int, member: str, k: int) -> int:
        return k

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        for member in self._members:
            if member.name == draft.source:
                member.observe(request, draft, accepted)

    def stop(self, request: int) -> None:
        for member in self._members:
            member.stop(request)


@dataclass(slots=True)
class _Record:
    """How one member has fared in one request."""

    average: float = START
    rest: int = 0

    def length(self, k: int, off: float) -> int:
        """How many tokens to ask for this round."""
        if self.average >= off:
            self.rest = 0
            return k if self.average > 0.8 else max(k - 2, 1) if self.average > 0.5 else 1
        self.rest += 1
        return int(self.rest % PROBE == 0)


class Ema(Fixed):
    """The length follows a moving average of acceptance, per request and member.

    Over 0.8 all of ``k``, over 0.5 two less, over ``off`` one token, else none, but for a probe of one
    token every 32 rounds.
    """

    def __init__(self, members: Sequence[Proposer], k: int, *, alpha: float = 0.1, off: float = 0.3) -> None:
        super().__init__(members, k)
        self._alpha, self._off = alpha, off
        self._records: dict[int, dict[str, _Record]] = {}

    def _length(self, request: int, member: str, k: int) -> int:
        return min(k, self._record(request, member).length(k, self._off))

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        record = self._record(request, draft.source)
        record.average += self._alpha * (accepted / len(draft.tokens) - record.average)
        super().observe(request, draft, accepted)

    def stop(self, request: int) -> None:
        self._records.pop(request, None)
        super().stop(request)

    def _record(self, request: int, member: str) -> _Record:
        return self._records.setdefault(request, {}).setdefault(member, _Record())


def repetition(tokens: Sequence[int], n: int = 3) -> float:
    """The share of n-grams that occurred before in ``tokens``; 0 for a text too short to say."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0
