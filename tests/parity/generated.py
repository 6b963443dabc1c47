"""Generated cases, played on one loaded model."""

from __future__ import annotations

import hypothesis
from hypothesis import HealthCheck, given, settings

from tests.parity.cases import Case, Texts, cases
from tests.parity.play import Loaded, Tally, play

FIXED = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def played(world: Loaded, texts: Texts, seed: int, how: settings) -> Tally:
    """Play cases of these texts, drawn by ``seed``, and return their tally; fails as :func:`play` does."""
    tally = Tally()

    @hypothesis.seed(seed)
    @how
    @given(case=cases(texts))
    def same(case: Case) -> None:
        play(world, case, tally)

    same()
    return tally
