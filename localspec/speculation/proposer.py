"""The contract of a proposer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from localspec.speculation.draft import Ask, Draft, nothing


class Proposer(ABC):
    """A source of drafts: guesses the target's next tokens. One proposer serves all requests of an engine.

    A wrong guess costs time, never correctness. After an exception the request goes on without this proposer.
    """

    name: str
    costly: bool = False
    """True if drafting takes time, so that `propose` is called only where a draft is likely to be used"""
    prior: Sequence[float] = (0.7,)
    """probability that a token is right, by its evidence, before anything is learnt; the last one repeats"""

    @property
    def learnt_as(self) -> str:
        """The name of what is learnt of its accuracy; of another draft model, something else is."""
        return self.name

    @abstractmethod
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Return a draft for every ask, in their order; an empty one where there is nothing to offer."""

    def price(self, ask: Ask, k: int) -> float:
        """The seconds that a draft of ``k`` tokens would take; 0 where that is negligible."""
        return 0.0

    def observe(self, request: int, draft: Draft, accepted: int) -> None:  # noqa: B027
        """Note that the first ``accepted`` tokens of ``draft`` were accepted, and no more."""

    def stop(self, request: int) -> None:  # noqa: B027
        """Drop the state of a request that has ended."""


PLAIN_DECODING = nothing("proposer is none")


class Nothing(Proposer):
    """Plain decoding: no drafts."""

    name = "none"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [PLAIN_DECODING for _ in asks]
