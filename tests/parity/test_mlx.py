"""Exactness on MLX, generated: whatever kind of cache a model has, speculation does not change its text.

tests/slow/test_exactness.py does the same at length.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.parity.generated import FIXED, played

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from tests.parity.loaded_mlx import MODELS, TEXTS, loaded_mlx  # noqa: E402

QUICK = ("qwen3.5",)
"""attention and, between its layers, states that cannot be taken back"""
CASES = 2


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_model_says_what_it_says_alone(name: str, tmp_path: Path) -> None:
    with loaded_mlx(name, tmp_path) as world:
        tally = played(world, TEXTS, MODELS.index(name), settings(FIXED, max_examples=CASES))
    assert tally.cases >= CASES
    print(f"{name}: {tally}")
