"""The network between ranks."""

from __future__ import annotations

from typing import NamedTuple

from localspec.ranks.peer import Peer

PINGS = 8
"""frames sent to a node and back: the fastest is its latency"""
LARGE, LARGE_PINGS = 1_000_000, 3
"""bytes of the frames by which bandwidth is measured, of which the first ones only open TCP's window"""


class Link(NamedTuple):
    """The seconds of a small frame to a node and back, and the bytes per second to it."""

    latency_s: float
    rate: float

    @classmethod
    def measured(cls, peer: Peer) -> Link:
        """Measure the link to a node that was greeted; raises :class:`NodeLost`."""
        latency_s = min(peer.round_trip() for _ in range(PINGS))
        large_s = min(peer.round_trip(bytes(LARGE)) for _ in range(LARGE_PINGS))
        return cls(latency_s, LARGE / max(large_s - latency_s, 1e-6))
