"""The toy backend obeys the contract it is the example of."""

from __future__ import annotations

from localspec.backends.base import Backend, Span
from tests.conformance.backend import BackendConformance
from tests.toy import ToyBackend, markov


class TestToy(BackendConformance):
    @classmethod
    def make(cls) -> Backend:
        return ToyBackend(markov(seed=3))


class TestToyThatReplays(BackendConformance):
    @classmethod
    def make(cls) -> Backend:
        return ToyBackend(markov(seed=3), rollback="replay")

    def keeps(self, backend: Backend) -> bool:
        return False


def test_beyond_a_limited_rollback_nothing_is_left() -> None:
    backend = ToyBackend(rollback=2)
    sequence = backend.open()
    backend.forward([Span(sequence, [1, 2, 3, 4], 0)])
    assert backend.truncate(sequence, 3) == 3
    assert (backend.reach(sequence, 1), backend.reach(sequence, 0)) == (1, 0)
    backend.forward([Span(sequence, [4, 5], 0)])
    assert backend.truncate(sequence, 1) == backend.length(sequence) == 0
