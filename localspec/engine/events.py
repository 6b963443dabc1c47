"""What a running request tells: read them from :attr:`Sequence.events`, in order."""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import LocalspecError
from localspec.protocol.results import Chunk, Result


class Prefilling(NamedTuple):
    """``fraction`` of the prompt is in the cache, 0 to 1."""

    fraction: float


class Degradation(NamedTuple):
    """The proposer ``source`` failed; the request goes on with ``to``."""

    source: str
    to: str
    reason: str


Event = Chunk | Prefilling | Degradation | Result | LocalspecError
"""a Result or a LocalspecError is the last one"""
