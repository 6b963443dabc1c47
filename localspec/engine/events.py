"""The events of a running request, read in order from :attr:`Sequence.events`; and the record of a round."""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import LocalspecError
from localspec.protocol.events import Degraded, Delta, Progress
from localspec.protocol.results import Result


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


Event = Delta | Progress | Degraded | Result | LocalspecError
"""a Result or a LocalspecError is the last one"""
