"""Exactness, generated: whatever speculates, the text is that of plain decoding.

tests/slow/test_exactness.py does the same at length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import Span
from localspec.backends.rounding import measure_rounding, set_rounding
from localspec.backends.toy import ToyBackend, ToyLogits
from localspec.engine.engine import Engine
from localspec.speculation.noise import Noise
from localspec.speculation.sampling import Sampler, SamplingParams
from tests.parity.cases import FAST, Asked, Case, ToyModel
from tests.parity.play import Tally, Toys, play
from tests.toys import answer, request, run_all, share_always, small_markov

GREEDY = {"temperature": 0.0, "max_tokens": 30}


def probed(backend: ToyBackend) -> ToyBackend:
    """With bounds and flags as a real backend finds them."""
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


def test_noise_that_is_not_looked_for_is_found() -> None:
    """The property can fail: the same noise, declared as none."""

    class Careless(Toys):
        def target(self) -> ToyBackend:
            backend = super().target()
            assert isinstance(backend, ToyBackend)
            backend.capabilities = replace(backend.capabilities, margin_bound=0.0, drift_bound=0.0)
            return backend

    with pytest.raises(AssertionError):
        for seed in range(40):
            play(Careless(replace(NOISY, seed=seed, noise=0.2)), Case((DRAFTED,)), Tally())


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
            request("abcabcabdabcabcaabbcc" * 3, temperature=0.0, proposer="none", max_tokens=150),
            request("fedcbafedcba" * 4, temperature=0.0, proposer="prompt-lookup", k=3, max_tokens=150),
        ]
        sequences = [engine.submit(each) for each in asked[:n]]
        run_all(engine, sequences)
        texts.append(answer(sequences[0]))
    assert texts[0] == texts[1]


def test_noisy_models_say_what_they_say_alone() -> None:
    assert differing(NOISY, DRAFTED) == 0


def test_a_bounded_rollback_is_enough_for_strict_mode() -> None:
    assert differing(replace(NOISY, rollback=6), DRAFTED) == 0


def test_neighbours_change_nothing_where_nothing_can_be_rolled_back() -> None:
    asks = [Asked(text, "none", None, GREEDY) for text in ("abc", "bca")]
    assert differing(replace(NOISY, rollback=0), *asks) == 0


def test_what_a_hasty_request_took_over_is_not_exact() -> None:
    first = Asked("abcabc", "none", None, GREEDY)
    text = "abcabc"
    hasty = Asked(text + "abcdabcd", "none", None, GREEDY | FAST | {"max_tokens": 1})
    again = Asked(text + "abcdabcd", "none", None, GREEDY)
    assert differing(NOISY, again, history=(first, hasty)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_cells_of_an_answer_are_not_those_of_a_prompt(seed: int) -> None:
    """With bounds and flags as they are measured on this very backend."""

    class Measured(Toys):
        def target(self) -> ToyBackend:
            backend = super().target()
            assert isinstance(backend, ToyBackend)
            return probed(backend)

    ask = Asked("abcabc", "none", None, GREEDY)
    play(Measured(replace(NOISY, seed=seed, n_ctx=160)), Case((ask,), history=(ask,)), Tally())


class Shifting(ToyBackend):
    """Rounding that moves all logits of a wide row alike: no probability changes."""

    def _error(self, flags: list[bool]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.full(self.vocabulary.size, 0.2 * flags[-1])


@pytest.mark.parametrize("seed", range(20))
def test_a_common_shift_changes_no_penalised_choice(seed: int) -> None:
    texts = set()
    for proposer in ("none", "draft"):
        base = small_markov(seed, sharpness=0.3)
        target = Shifting(lambda c, base=base: [max(x, -50.0) for x in base(c)], n_ctx=400)  # type: ignore[misc]
        probed(target)
        engine = Engine(target, ToyBackend(small_markov(seed + 1000, sharpness=0.3)))
        ask = request("abc", temperature=0.0, repeat_penalty=1.3, proposer=proposer, k=4, max_tokens=40)
        sequence = engine.submit(ask)
        run_all(engine, [sequence])
        texts.add(tuple(answer(sequence)))
    assert len(texts) == 1


@pytest.mark.parametrize("size", [900, 4000])
def test_an_error_smaller_than_the_margin_changes_no_choice_of_many_tokens(size: int) -> None:
    rng = np.random.default_rng(1)
    for number in range(200):
        row = (1.2 * rng.standard_normal(size)).astype(np.float32)
        one = Sampler(SamplingParams(temperature=1.0, top_p=0.3), Noise(number), seeded=True)
        token, margin = one.choose(row, (), 5)
        assert token == one.pick(row, (), 5)
        for _ in range(3 if margin > 0 else 0):
            off = 0.499 * min(margin, 2.0)
            moved = (row + rng.uniform(-off, off, size)).astype(np.float32)
            assert one.pick(moved, (), 5) == token
