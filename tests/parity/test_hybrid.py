"""Exactness with recurrent states in llama.cpp, generated: speculation does not change a model's text.

tests/slow/test_exactness.py does the same at length.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings

from tests.parity.cases import Case, cases
from tests.parity.loaded_hybrid import HYBRID_TEXTS, MODELS, loaded_hybrid
from tests.parity.play import Tally, play

FIXED = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
QUICK = ("lfm2", "qwen35", "nemotron_h Q4_K_M")
CASES = 4


@pytest.mark.parametrize("name", QUICK)
def test_a_model_says_what_it_says_alone(name: str, tmp_path: Path) -> None:
    tally = Tally()
    with loaded_hybrid(name, tmp_path) as world:

        @hypothesis.seed(MODELS.index(name))
        @settings(FIXED, max_examples=CASES)
        @given(case=cases(HYBRID_TEXTS))
        def same(case: Case) -> None:
            play(world, case, tally)

        same()
    assert tally.cases >= CASES and tally.drafted > 0
    print(f"{name}: {tally}")
