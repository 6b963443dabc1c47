"""The toy backend obeys the contract it is the example of."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.backends.base import Backend, Span
from localspec.errors import EngineError
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


def test_noise_depends_on_how_the_cells_were_written_and_on_nothing_else() -> None:
    backend = ToyBackend(markov(), noise=0.1)

    def last_row(*widths: int) -> bytes:
        sequence, tokens = backend.open(), list(range(sum(widths)))
        for width in widths:
            logits = backend.forward([Span(sequence, tokens[:width], 1)])
            del tokens[:width]
        backend.close(sequence)
        return logits.rows(0, 1).tobytes()

    assert last_row(6) == last_row(2, 4) == last_row(3, 3)
    assert last_row(4, 1, 1) == last_row(2, 2, 1, 1)
    assert len({last_row(6), last_row(4, 1, 1), last_row(1, 4, 1), last_row(1, 5)}) == 4
    clean = ToyBackend(markov())
    row = clean.forward([Span(clean.open(), list(range(6)), 1)]).rows(0, 1)
    assert 0 < abs(np.frombuffer(last_row(6), dtype=np.float32) - row).max() <= 0.1 + 1e-6


def test_a_token_that_does_not_exist_is_refused() -> None:
    backend = ToyBackend()
    with pytest.raises(EngineError, match="no token"):
        backend.forward([Span(backend.open(), [9999], 1)])
