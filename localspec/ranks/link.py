"""The network between ranks, and the time that a model's layers wait for it."""

from __future__ import annotations

from typing import NamedTuple

from localspec.backends.base import hash_of_end
from localspec.models.directory import ModelDirectory, number_of
from localspec.models.fit import build_for
from localspec.models.library import restore_any
from localspec.ranks.peer import Peer
from localspec.speculation.costs import CostCurve

PINGS = 8
"""frames sent to a node and back: the fastest is its latency"""
LARGE, LARGE_PINGS = 1_000_000, 3
"""bytes of the frames by which bandwidth is measured, of which the first ones only open TCP's window"""
NUMBER = 2
"""bytes of a number that is summed: most models compute in half precision"""


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

    def sums_s(self, shape: Shape, ranks: int, width: int) -> float:
        """The seconds that a forward of ``width`` tokens waits for its sums.

        In a ring each of the two halves of a sum takes ``ranks`` - 1 steps, and each step sends one rank's
        part of the numbers.
        """
        part = width * shape.features * NUMBER / ranks
        return 2 * shape.layers * 2 * (ranks - 1) * (self.latency_s / 2 + part / self.rate)


class Shape(NamedTuple):
    """The number of a model's layers, which each sum twice, and of the features that are summed per token."""

    layers: int
    features: int

    @classmethod
    def of(cls, directory: ModelDirectory) -> Shape:
        """The shape by a model's configuration; 0 for what it does not say."""
        return cls(*(number_of(directory.config, key) or 0 for key in ("num_hidden_layers", "hidden_size")))


def alone_s(directory: ModelDirectory) -> float | None:
    """The seconds of a token on this machine alone, as an engine measured them; None: none did."""
    weights = f" {directory.size} bytes {hash_of_end(directory.weights[-1])}, "
    curve = CostCurve()
    known = restore_any(curve, "cost of mlx ", weights, f"build {build_for('mlx')}")
    return curve.seconds(1) if known else None
