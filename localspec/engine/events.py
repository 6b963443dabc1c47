"""The events of a running request, read in order from :attr:`Sequence.events`; and the record of a round."""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import LocalspecError
from localspec.protocol.events import Degraded, Delta, Progress
from localspec.protocol.results import Result


class RoundPlayed(NamedTuple):
    """The record of one round of one request.

    ``k`` draft tokens were ``proposed`` by ``proposer``, ``accepted`` of them were right; ``chosen`` are the
    ``emitted`` tokens of the round. ``ms`` are the milliseconds of the whole round of the batch, ``width``
    is the number of tokens of its forward, over all requests.
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
"""the last one is a Result or a LocalspecError"""
