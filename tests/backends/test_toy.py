"""The toy backend obeys the contract it is the example of."""

from __future__ import annotations

import pytest

from localspec.backends.base import Backend, Span
from localspec.backends.toy import ToyBackend, markov
from localspec.errors import EngineError
from tests.conformance.backend import BackendConformance


class TestToy(BackendConformance):
    @classmethod
    def make(cls) -> Backend:
        return ToyBackend(markov(seed=3))


def test_a_limited_rollback_is_enforced() -> None:
    backend = ToyBackend(rollback=2)
    sequence = backend.open()
    backend.forward([Span(sequence, [1, 2, 3, 4], 0)])
    with pytest.raises(EngineError, match="rollback"):
        backend.truncate(sequence, 1)
    backend.truncate(sequence, 2)


def test_noise_touches_wide_forwards_only() -> None:
    clean, noisy = ToyBackend(markov()), ToyBackend(markov(), noise=0.1)
    rows = {}
    for name, backend in (("clean", clean), ("noisy", noisy)):
        sequence = backend.open()
        rows[name, "narrow"] = backend.forward([Span(sequence, [5], 1)]).rows(0, 1)
        rows[name, "wide"] = backend.forward([Span(sequence, [6, 7], 2)]).rows(0, 2)
    assert (rows["clean", "narrow"] == rows["noisy", "narrow"]).all()
    difference = abs(rows["clean", "wide"] - rows["noisy", "wide"]).max()
    assert 0 < difference <= 0.1 + 1e-6


def test_a_token_that_does_not_exist_is_refused() -> None:
    backend = ToyBackend()
    with pytest.raises(EngineError, match="no token"):
        backend.forward([Span(backend.open(), [9999], 1)])
