"""The bound on a request's losses by speculation, with a scripted cost of forwards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.backends.base import PRESUMED, Span, set_rounding
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.speculation.costs import CostCurve
from tests.toy import ToyBackend, ToyLogits, ToyVocabulary

UNIT = 0.01
"""seconds of a narrow forward: next to them, asking for drafts is nothing"""
LETTERS = 23
PROMPT = "".join(chr(97 + i % LETTERS) for i in range(60))


class Counted(ToyBackend):
    """Adds up what its forwards would take: ``slope`` more of a narrow one for every further token."""

    slope = 0.12
    spent = 0.0

    def cost(self, width: int) -> float:
        return UNIT * (1 + self.slope * (width - 1)) if width < 40 else 8 * UNIT

    def forward(self, batch: Sequence[Span]) -> ToyLogits:
        self.spent += self.cost(sum(len(span.tokens) for span in batch))
        return super().forward(batch)


class Known(CostCurve):
    """Costs that are fixed, whatever the clock shows."""

    def __init__(self, backend: Counted) -> None:
        super().__init__()
        for _ in range(5):
            for width in range(1, 30):
                super().observe(width, 0, backend.cost(width))

    def observe(self, width: int, context: int, seconds: float) -> None:
        """Time passes on the backend's own clock only."""


def alphabet() -> Counted:
    """A model that repeats the alphabet."""

    def rule(context: Sequence[int]) -> list[float]:
        logits = np.full(ToyVocabulary.size, -5.0)
        logits[97 + (context[-1] - 96) % LETTERS if 97 <= context[-1] < 97 + LETTERS else 97] = 1.0
        return list(logits)

    return Counted(rule, noise=0.02)


def decode(proposer: str, slope: float) -> tuple[float, str]:
    """Return the time of the third request on an engine, and its text."""
    target = alphabet()
    target.slope = slope
    set_rounding(target, PRESUMED)
    learning = Learning(target)
    learning.costs = Known(target)
    engine = Engine(target, learning=learning)
    for _ in range(3):
        target.spent = 0.0
        result = engine.generate(PROMPT, max_tokens=300, temperature=0.0, proposer=proposer).finish()
    return target.spent, result.text


@pytest.mark.parametrize(("slope", "most"), [(0.12, 0.35), (0.5, 0.9)])
def test_a_text_that_repeats_is_faster_where_rows_round_otherwise(slope: float, most: float) -> None:
    """The default pays nothing for exactness: drafts are as long as costs allow."""
    plain, text = decode("none", slope)
    spent, same = decode("auto", slope)
    assert same == text and spent < most * plain
