"""Sampling without a seed: whatever is drafted and dropped, tokens are distributed as the target's.

Nothing is drawn here: every draft that a draft model could make is made once, and weighed by its
probability, so a bias of 1e-9 shows. tests/slow/test_exactness.py draws through the whole engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.speculation.controller import Calibration, Controller
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.noise import Noise, NoiseStream
from localspec.speculation.proposer import Ask, Draft, Proposer, Savings
from localspec.speculation.sampling import Sampler, SamplingParams
from tests.parity.chains import Three, chain
from tests.parity.play import Priced
from tests.toy import ToyBackend

DEPTH = 3
"""tokens that are drafted at most"""
P = (0.4, 0.3, 0.3)


class Dictated(Noise):
    """Noise that draws the tokens that a test sets."""

    def __init__(self, script: Sequence[int], start: int) -> None:
        super().__init__(0)
        self._script, self._start = script, start

    def gumbel(self, position: int, stream: NoiseStream, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        assert stream is NoiseStream.DRAFT
        return np.where(tokens == self._script[position - self._start], 1e6, 0.0)


@dataclass(frozen=True)
class World:
    """``rows[t]`` is the draft model's next distribution after t; ``target`` and ``draft`` are costs."""

    rows: tuple[tuple[float, ...], ...]
    target: tuple[float, ...]
    draft: float
    saved_s: float

    def model(self) -> DraftModel:
        backend = ToyBackend(chain(self.rows), vocabulary=Three(), n_ctx=64)
        return DraftModel(backend, Three.size, Priced([self.draft]))

    def controller(self) -> Proposer:
        return Controller([self.model()], Priced(self.target), Calibration(), name="draft")

    def ask(self, script: Sequence[int]) -> Ask:
        sampler = Sampler(SamplingParams(temperature=1.0), Dictated(script, 1), seeded=False)
        return Ask(1, [0], DEPTH, sampler, savings=Savings(self.saved_s, 100.0))

    def scripts(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """All drafts there could be, with their probabilities."""
        for script in product(range(Three.size), repeat=DEPTH):
            before = (0, *script)
            yield script, math.prod(self.rows[a][b] for a, b in zip(before, script, strict=False))


def first_token(world: World, draft: Draft) -> NDArray[np.float64]:
    """The distribution of the token that comes of this draft, over the verifier's own randomness."""
    p = np.array(P)
    if not draft.tokens:
        return p
    q, drafted = np.array(world.rows[0]), draft.tokens[0]
    stands = min(1.0, p[drafted] / q[drafted])
    rest = np.maximum(p - q, 0.0)
    found: NDArray[np.float64] = (1 - stands) * rest / rest.sum() if rest.sum() > 0 else np.zeros(Three.size)
    found[drafted] += stands
    return found


def bias(world: World, make: Callable[[], Proposer]) -> float:
    """Return the largest difference of the first token's distribution from the target's."""
    total = np.zeros(Three.size)
    for script, weight in world.scripts():
        total += weight * first_token(world, make().propose([world.ask(script)])[0])
    return float(np.abs(total - P).max())


SURE = [(0.97, 0.02, 0.01), (0.01, 0.98, 0.01), (0.01, 0.01, 0.98)]
UNSURE = [(0.34, 0.33, 0.33), (0.45, 0.35, 0.2), (0.5, 0.3, 0.2)]
FIRST = [(0.7, 0.2, 0.1), (0.5, 0.3, 0.2), (0.2, 0.7, 0.1), (0.9, 0.05, 0.05)]
STEP = st.sampled_from([0.01, 0.02, 0.1, 0.5, 1.0])
LATER = st.sampled_from(SURE + UNSURE)
WORLDS = st.builds(
    World,
    rows=st.tuples(st.sampled_from(FIRST), LATER, LATER),
    target=st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.8]), STEP, STEP, STEP).map(
        lambda extra: tuple(1.0 + sum(extra[:i]) for i in range(5))
    ),
    draft=st.sampled_from([0.001, 0.05]),
    saved_s=st.sampled_from([-1.0, 0.0, 50.0]),
)
DROPPED = [
    World((FIRST[3], SURE[1], UNSURE[0]), (1.0, 1.8, 1.9, 2.0, 2.3), 0.001, 0.0),
    World((FIRST[2], UNSURE[0], UNSURE[2]), (1.0, 1.5, 1.6, 2.6, 2.9), 0.001, 50.0),
    World((FIRST[1], SURE[2], UNSURE[0]), (1.0, 1.5, 1.51, 1.52, 2.52), 0.05, 50.0),
    World((FIRST[1], SURE[1], UNSURE[2]), (1.0, 1.5, 1.51, 2.01, 2.51), 0.001, 50.0),
]
"""worlds in which it once depended on the drawn tokens that they were verified"""


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@example(DROPPED[0])
@example(DROPPED[1])
@example(DROPPED[2])
@example(DROPPED[3])
@given(WORLDS)
def test_the_first_token_is_distributed_as_the_target_whatever_pays(world: World) -> None:
    assert bias(world, world.controller) < 1e-9


def test_drafts_have_different_lengths_in_these_worlds() -> None:
    lengths = {
        len(world.controller().propose([world.ask(script)])[0].tokens)
        for world in DROPPED
        for script, _ in world.scripts()
    }
    assert min(lengths) < max(lengths)


def test_a_draft_model_alone_is_unbiased() -> None:
    assert all(bias(world, world.model) < 1e-9 for world in DROPPED)
