"""Exactness with recurrent states in llama.cpp, generated: speculation does not change a model's text.

tests/slow/test_exactness.py does the same at length.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.parity.generated import FIXED, played
from tests.parity.loaded_hybrid import HYBRID_TEXTS, MODELS, loaded_hybrid

QUICK = ("lfm2", "qwen35", "qwen35 Q4_K_M")
CASES = 4


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_model_says_what_it_says_alone(name: str, tmp_path: Path) -> None:
    with loaded_hybrid(name, tmp_path) as world:
        tally = played(world, HYBRID_TEXTS, MODELS.index(name), settings(FIXED, max_examples=CASES))
    assert tally.cases >= CASES and tally.drafted > 0
    print(f"{name}: {tally}")
