"""Exactness on MLX, generated: whatever kind of cache a model has, speculation does not change its text.

tests/slow/test_exactness.py does the same at length.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings

from tests.parity.cases import Case, cases
from tests.parity.play import Tally, play

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from tests.parity.loaded_mlx import MODELS, TEXTS, loaded_mlx  # noqa: E402

FIXED = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
QUICK = ("qwen3.5",)
"""attention and, between its layers, states that cannot be taken back"""
CASES = 2


@pytest.mark.parametrize("name", QUICK)
def test_a_model_says_what_it_says_alone(name: str, tmp_path: Path) -> None:
    tally = Tally()
    with loaded_mlx(name, tmp_path) as world:

        @hypothesis.seed(MODELS.index(name))
        @settings(FIXED, max_examples=CASES)
        @given(case=cases(TEXTS))
        def same(case: Case) -> None:
            play(world, case, tally)

        same()
    assert tally.cases >= CASES
    print(f"{name}: {tally}")
