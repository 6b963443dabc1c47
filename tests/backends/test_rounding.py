"""The probe of a model's rounding: whole, or not believed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import ANY_WIDTH, Span
from localspec.backends.rounding import (
    CONTEXTS,
    PRESUMED,
    SAFETY,
    Probe,
    Rounding,
    measure_rounding,
    set_rounding,
)
from localspec.backends.toy import ToyBackend, ToyLogits, markov


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_a_model_does_is_found(noise: float) -> None:
    backend = ToyBackend(markov(), noise=noise)
    found = measure_rounding(backend, within_s=math.inf)
    assert found is not None and backend.open_sequences == 0
    if noise:
        # Two tokens of a row move by up to the noise each, in both of the rows compared.
        assert noise < found.margin_bound <= SAFETY * 4 * noise
        assert found.drift_bound == found.margin_bound, (
            "a change seen in either kind of row is possible in both"
        )
    else:
        assert found == Rounding(
            0.0,
            0.0,
            exact_width=ANY_WIDTH,
            exact_piece=ANY_WIDTH,
            exact_batches=True,
            even_short=True,
            even_long=True,
        )


class RarelyNoisy(ToyBackend):
    """Rows of forwards of eight tokens are off now and then, all others never."""

    seed = 0

    def forward(self, batch: Sequence[Span]) -> ToyLogits:
        self._is_wide = max(len(span.tokens) for span in batch) == 8
        return super().forward(batch)

    def _error(self, flags: list[bool]) -> NDArray[np.float64]:
        draw = np.random.default_rng([self.seed, len(flags) // 8])
        is_off = self._is_wide and draw.random() < 0.3
        return draw.uniform(-self.noise, self.noise, self.vocabulary.size) * is_off


def test_a_width_that_changes_rows_now_and_then_has_bounds() -> None:
    found = []
    for seed in range(8):
        backend = RarelyNoisy(markov())
        backend.make_noisy(0.05, exact_width=7)
        backend.seed = seed
        found.append(measure_rounding(backend, within_s=math.inf))
    inexact = [each for each in found if each is not None and each.exact_width < ANY_WIDTH]
    assert len(inexact) > 4 and all(each.margin_bound == each.drift_bound > 0 for each in inexact)


@pytest.mark.parametrize(("true", "found"), [(1, 1), (2, 2), (4, 4), (6, 5), (8, ANY_WIDTH)])
def test_the_widths_that_change_nothing_are_found(true: int, found: int) -> None:
    """As far as it was probed: six tokens may differ where five and eight are looked at."""
    backend = ToyBackend(markov())
    backend.make_noisy(0.05, exact_width=true)
    measured = measure_rounding(backend, within_s=math.inf)
    assert measured is not None and measured.exact_width == found
    assert (measured.margin_bound == 0.0) == (found == ANY_WIDTH)


def test_a_probe_that_takes_too_long_says_nothing() -> None:
    """A part of it may have seen no difference where the rest would have: nothing is no bound of zero."""
    backend = ToyBackend(markov(), noise=0.05)
    assert measure_rounding(backend, within_s=0.0) is None
    assert backend.open_sequences == 0
    set_rounding(backend, PRESUMED)
    assert backend.capabilities.margin_bound > 0 and backend.capabilities.drift_bound > 0


@pytest.mark.parametrize("pause", [40, 60])
def test_pauses_of_a_few_forwards_measure_what_a_long_one_does(pause: int) -> None:
    """Requests come all the time: what was measured between them stays."""
    whole, backend = (ToyBackend(markov(), n_ctx=600, noise=0.05) for _ in range(2))
    total, probe, pauses = sum(1 for _ in Probe(whole).steps()), Probe(backend), 0
    found = None
    while found is None:
        steps = probe.steps()
        for _ in range(pause):
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
                break
        steps.close()
        pauses += 1
        assert backend.open_sequences == 0 and pauses < 2 * total / pause * 3
    assert pauses > 4 and found == measure_rounding(whole, within_s=math.inf)


def test_it_can_be_interrupted_at_every_step() -> None:
    backend = ToyBackend(markov(), n_ctx=128)
    total = sum(1 for _ in Probe(backend).steps())
    for n in range(0, total, 7):
        steps = Probe(backend).steps()
        for _ in range(n):
            next(steps)
        steps.close()
        assert backend.open_sequences == 0


def test_long_and_short_contexts_are_probed() -> None:
    backend = ToyBackend(markov(), n_ctx=512)
    measure_rounding(backend, within_s=math.inf)
    widest = {len(batch[0].tokens) for batch in backend.forwards}
    assert set(CONTEXTS) <= widest
