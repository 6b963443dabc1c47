"""The check of a model's rows: whole, or not believed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import PRESUMED, WIDTHS, Probe, Rounding, Span, measure_rounding, set_rounding
from tests.toy import ToyBackend, ToyLogits, markov


def found_in(backend: ToyBackend) -> Rounding:
    found = measure_rounding(backend, within_s=math.inf)
    assert found is not None and backend.open_sequences == 0
    return found


class Unequal(ToyBackend):
    """Adds errors to the rows of forwards in which ``is_off`` is True for the widths of the spans."""

    seed = 0

    def is_off(self, widths: list[int]) -> bool:
        return False

    def forward(self, batch: Sequence[Span]) -> ToyLogits:
        self._off = self.is_off([len(span.tokens) for span in batch])
        return super().forward(batch)

    def _error(self, flags: list[bool]) -> NDArray[np.float64]:
        draw = np.random.default_rng([self.seed, len(flags)])
        return draw.uniform(-self.noise, self.noise, self.vocabulary.size) * self._off


@pytest.mark.parametrize("rollback", [None, "replay"])
@pytest.mark.parametrize(("true", "found"), [(1, 1), (2, 2), (4, 4), (6, 5), (8, 8), (21, 21)])
def test_the_widths_that_change_nothing_are_found(true: int, found: int, rollback: None) -> None:
    """As far as they are tried: six tokens may differ where five and eight are looked at."""
    backend = ToyBackend(markov(), n_ctx=600, rollback=rollback)
    backend.make_noisy(0.05, exact_width=true)
    assert found_in(backend).exact_width == found


def test_a_model_without_rounding_is_exact_at_all_widths_tried() -> None:
    assert found_in(ToyBackend(markov(), n_ctx=600)) == Rounding(max(WIDTHS), exact_batches=True)


@pytest.mark.parametrize("seed", range(8))
def test_rows_that_are_equal_by_chance_are_not_taken_for_exact(seed: int) -> None:
    """Four rows of Q4_K are equal in 3 of 8 cases, two and three always."""

    class ByChance(Unequal):
        def is_off(self, widths: list[int]) -> bool:
            n = sum(self.length(sequence) for sequence in self._cache)
            return 4 <= widths[0] <= 21 and np.random.default_rng([seed, n, *widths]).random() > 3 / 8

    backend = ByChance(markov(), n_ctx=600)
    backend.noise, backend.seed = 0.05, seed
    assert found_in(backend).exact_width == 3


def test_batches_that_change_rows_are_found() -> None:
    class Batched(Unequal):
        def is_off(self, widths: list[int]) -> bool:
            return len(widths) > 1

    backend = Batched(markov(), n_ctx=600, max_sequences=4)
    backend.noise = 0.05
    assert found_in(backend) == Rounding(max(WIDTHS), exact_batches=False)


def test_a_check_that_takes_too_long_says_nothing() -> None:
    """A part of it may have seen no difference where the rest would have."""
    backend = ToyBackend(markov(), noise=0.05)
    assert measure_rounding(backend, within_s=0.0) is None
    assert backend.open_sequences == 0
    set_rounding(backend, PRESUMED)
    assert backend.capabilities.exact_width == 1 and not backend.capabilities.exact_batches


def test_pauses_find_what_a_long_one_does() -> None:
    """Requests come all the time: finished parts of the check stay."""
    whole, backend = (ToyBackend(markov(), n_ctx=600, noise=0.05) for _ in range(2))
    probe, pauses, found = Probe(backend), 0, None
    while found is None:
        steps = probe.steps()
        for _ in range(30):
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
                break
        steps.close()
        pauses += 1
        assert backend.open_sequences == 0 and pauses < 5
    assert pauses > 1 and found == found_in(whole)
