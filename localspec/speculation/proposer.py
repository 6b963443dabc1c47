"""The contract of a proposer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from localspec.speculation.draft import Ask, Draft, nothing


class Proposer(ABC):
    """Guesses what the target will say. One proposer serves all requests of an engine.

    A wrong guess costs time, never correctness; an exception costs the request this proposer.
    """

    name: str
    costly: bool = False
    """whether a draft takes time, so that it is asked for only where it is likely to be used"""
    prior: Sequence[float] = (0.7,)
    """how often a token is right, by its evidence, before anything was learnt; the last one repeats"""

    @abstractmethod
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A draft for every ask, in their order; an empty one where there is nothing to offer."""

    def price(self, ask: Ask, k: int) -> float:
        """Seconds that a draft of ``k`` tokens would take; 0 where it is next to nothing."""
        return 0.0

    def catch_up(self, ask: Ask) -> float:
        """Seconds that must be spent once before the first token can be drafted."""
        return 0.0

    def observe(self, request: int, draft: Draft, accepted: int) -> None:  # noqa: B027
        """``accepted`` of the draft's tokens were right."""

    def stop(self, request: int) -> None:  # noqa: B027
        """The request has ended: forget it."""

    def recover(self) -> None:  # noqa: B027
        """A KeyboardInterrupt may have ended any call: free what no request has."""


ASKED_FOR_NOTHING = nothing("proposer is none")


class Nothing(Proposer):
    """Plain decoding."""

    name = "none"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [ASKED_FOR_NOTHING for _ in asks]
