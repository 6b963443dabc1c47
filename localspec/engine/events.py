"""What a running request tells: read them from :attr:`Sequence.events`, in order."""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import LocalspecError
from localspec.protocol.results import Chunk, Result


class Prefilling(NamedTuple):
    """Tokens of the prompt: ``total``, of which ``processed`` are in the cache, ``cached`` since before."""

    total: int
    cached: int
    processed: int

    @property
    def fraction(self) -> float:
        """The part of the prompt that is in the cache, 0 to 1."""
        return self.processed / self.total


class Degradation(NamedTuple):
    """The proposer ``source`` failed; the request goes on with ``to``."""

    source: str
    to: str
    reason: str


class RoundPlayed(NamedTuple):
    """One round of one request, as it was played.

    ``k`` draft tokens were ``proposed`` by ``proposer``, ``accepted`` of them stood; ``chosen`` are the
    ``emitted`` tokens that came out. ``ms`` is the whole round of the batch, ``width`` its forward's
    tokens over all requests.
    """

    request: int
    round: int
    proposer: str
    k: int
    proposed: tuple[int, ...]
    chosen: tuple[int, ...]
    accepted: int
    emitted: int
    ms: float
    propose_ms: float
    forward_ms: float
    width: int


Event = Chunk | Prefilling | Degradation | Result | LocalspecError
"""a Result or a LocalspecError is the last one"""
