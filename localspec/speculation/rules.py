"""The settings that choose or disable proposers, :class:`Rules`, and two simple rules for the draft length.

``controller = "cost"`` is the :class:`Controller`. ``"fixed"`` and ``"ema"`` serve comparison with other
programs: a fixed length, and a length by a moving average of acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.proposer_kinds import AUTO
from localspec.speculation.controller import Controller
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import NOTHING, Ask, Draft, nothing
from localspec.speculation.proposer import Proposer
from localspec.speculation.survival import Calibration

LONGEST_K = 20
"""most draft tokens a round"""
LITTLE_REPETITION = "the prompt repeats too little (repetition_gate)"

PROBE = 32
"""rounds after which a proposer that is off is tried again"""
START = 0.7


class Rules:
    """The policy of ``controller``, ``repetition_gate`` and ``disable_by_batch_size``, one per engine."""

    def __init__(self, config: EngineConfig, costs: CostCurve, calibration: Calibration) -> None:
        self._controller = config.controller
        self._gate, self._crowd = config.repetition_gate, config.disable_by_batch_size
        self._costs, self._calibration = costs, calibration

    def steered(self, members: Sequence[Proposer], own: Sequence[Proposer]) -> list[Proposer]:
        """The proposers that find the length of a draft themselves: ``auto`` over all ``members``, and by
        cost also each of ``own`` under its name."""
        match self._controller:
            case "ema":
                return [Ema(members, LONGEST_K)]
            case "fixed":
                return [Fixed(members, LONGEST_K)]
        alone = [self._by_cost([member], member.name) for member in own]
        return [self._by_cost(members, AUTO), *alone]

    def _by_cost(self, members: Sequence[Proposer], name: str) -> Controller:
        return Controller(members, self._costs, self._calibration, name=name)

    def obstacle(self, proposer: str, tokens: Sequence[int]) -> str | None:
        """Return the reason for no drafts in the answer to a prompt; None if there may be drafts."""
        if proposer == AUTO and self._gate and repetition(tokens) < self._gate:
            return LITTLE_REPETITION
        return None

    def crowded(self, number: int) -> Draft | None:
        """The empty draft of each request where so many decode together that none drafts; else None."""
        if 0 < self._crowd <= number:
            return nothing(f"{self._crowd} requests or more decode together")
        return None


class Fixed(Proposer):
    """Calls its members in order, each for the full length requested, up to ``k``; takes the first draft."""

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
    """The acceptance of one member in one request."""

    average: float = START
    rest: int = 0

    def length(self, k: int, off: float) -> int:
        """Return the draft length of this round; 0: the member is off."""
        if self.average >= off:
            self.rest = 0
            return k if self.average > 0.8 else max(k - 2, 1) if self.average > 0.5 else 1
        self.rest += 1
        return int(self.rest % PROBE == 0)


class Ema(Fixed):
    """A draft length that follows a moving average of acceptance, per request and member.

    Above 0.8 it is ``k``, above 0.5 two less, from ``off`` on one token, below none, except for a probe of
    one token every 32 rounds.
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
    """The share of n-grams that occurred before in ``tokens``; 0 for a text of fewer than ``n`` tokens."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0
