"""The contract of a proposer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from localspec.speculation.draft import NOTHING, Ask, Draft


class Proposer(ABC):
    """Guesses what the target will say. One proposer serves all requests of an engine.

    A wrong guess costs time, never correctness; an exception costs the request this proposer.
    """

    name: str

    @abstractmethod
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A draft for every ask, in their order; an empty one where there is nothing to offer."""

    def observe(self, request: int, draft: Draft, accepted: int) -> None:  # noqa: B027
        """``accepted`` of the draft's tokens were right."""

    def stop(self, request: int) -> None:  # noqa: B027
        """The request has ended: forget it."""


class Nothing(Proposer):
    """Plain decoding."""

    name = "none"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [NOTHING for _ in asks]
