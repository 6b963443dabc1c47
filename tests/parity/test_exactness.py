"""Exactness, generated: whatever speculates, the text is that of plain decoding.

tests/slow/test_exactness.py does the same at length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import Span, measure_rounding, set_rounding
from localspec.engine.engine import Engine
from tests.parity.cases import FAST, Asked, Case, ToyModel
from tests.parity.play import Tally, Toys, play
from tests.toy import ToyBackend, ToyLogits
from tests.toys import answer, request, run_all, share_always, small_markov

GREEDY = {"temperature": 0.0, "max_tokens": 30}
STRICT: dict[str, Any] = {"temperature": 0.0, "exactness": "strict"}


def probed(backend: ToyBackend) -> ToyBackend:
    """With capabilities as a real backend finds them."""
    found = measure_rounding(backend, within_s=60.0)
    assert found is not None
    set_rounding(backend, found)
    return backend


def differing(model: ToyModel, *asks: Asked, history: tuple[Asked, ...] = (), chunk: int = 4) -> int:
    """In how many of 20 models like this one some text differs."""
    count = 0
    for seed in range(20):
        try:
            play(Toys(replace(model, seed=seed)), Case(asks, history=history, chunk=chunk), Tally())
        except AssertionError:
            count += 1
    return count


NOISY = ToyModel(seed=0, sharpness=0.3, noise=0.05)
DRAFTED = Asked("abc", "draft", 4, GREEDY)
PLAIN, OTHER = (Asked(text, "none", None, GREEDY) for text in ("abc", "bca"))


class Padded(ToyBackend):
    """Computes all spans of a batch as wide as the longest, and rounds accordingly."""

    def forward(self, batch: Sequence[Span]) -> ToyLogits:
        self._computed = len(batch) * max(len(span.tokens) for span in batch)
        return super().forward(batch)

    def _append(self, span: Span, *, wide: bool) -> list[NDArray[np.float64]]:
        return super()._append(span, wide=self._computed > self._exact_width)


@pytest.mark.parametrize("seed", range(6))
def test_rounds_that_are_filled_up_are_as_wide_as_that(seed: int) -> None:
    texts = []
    for n in (1, 2):
        backend = Padded(small_markov(seed, sharpness=0.5), max_sequences=4)
        backend.make_noisy(0.1, exact_width=5)
        engine = share_always(Engine(backend))
        asked = [
            request("abcabcabdabcabcaabbcc" * 3, **STRICT, proposer="none", max_tokens=150),
            request("fedcbafedcba" * 4, **STRICT, proposer="prompt-lookup", k=3, max_tokens=150),
        ]
        sequences = [engine.submit(each) for each in asked[:n]]
        run_all(engine, sequences)
        texts.append(answer(sequences[0]))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("model", "asks"),
    [
        pytest.param(NOISY, [DRAFTED], id="noisy"),
        pytest.param(replace(NOISY, rollback=6), [DRAFTED], id="a bounded rollback"),
        pytest.param(replace(NOISY, rollback=0), [PLAIN, OTHER], id="neighbours without a rollback"),
    ],
)
def test_models_say_what_they_say_alone(model: ToyModel, asks: list[Asked]) -> None:
    assert differing(model, *asks) == 0


def test_what_a_hasty_request_took_over_is_not_exact() -> None:
    first = Asked("abcabc", "none", None, GREEDY)
    text = "abcabc"
    hasty = Asked(text + "abcdabcd", "none", None, GREEDY | FAST | {"max_tokens": 1})
    again = Asked(text + "abcdabcd", "none", None, GREEDY)
    assert differing(NOISY, again, history=(first, hasty)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_cells_of_an_answer_are_not_those_of_a_prompt(seed: int) -> None:
    """With capabilities as they are measured on this very backend."""

    class Measured(Toys):
        def target(self) -> ToyBackend:
            backend = super().target()
            assert isinstance(backend, ToyBackend)
            return probed(backend)

    ask = Asked("abcabc", "none", None, GREEDY)
    play(Measured(replace(NOISY, seed=seed, n_ctx=160)), Case((ask,), history=(ask,)), Tally())
