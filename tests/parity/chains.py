"""A Markov chain of three tokens, drawn through the whole engine and counted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt
from tests.parity.play import Priced
from tests.toy import Rule, ToyBackend, ToyVocabulary
from tests.toys import answer, run_all

P = ((0.4, 0.3, 0.3), (0.1, 0.6, 0.3), (0.25, 0.25, 0.5))
Q = ((0.5, 0.3, 0.2), (0.02, 0.96, 0.02), (0.4, 0.3, 0.3))
"""of the target and of the draft model: row t is the distribution after t"""
LENGTH = 1000
LIMIT = 38.3
"""chi-square with 6 degrees of freedom exceeds this once in a million times"""


class Three(ToyVocabulary):
    """Three tokens, none of which ends anything."""

    size = 3
    end_tokens = frozenset()


def chain(rows: Sequence[Sequence[float]]) -> Rule:
    return lambda context: [math.log(p) for p in rows[context[-1]]]


def engine() -> Engine:
    target, draft = (
        ToyBackend(chain(rows), vocabulary=Three(), n_ctx=LENGTH + 50, max_sequences=2) for rows in (P, Q)
    )
    learning = Learning(target)
    learning.costs = Priced([1.0, 1.5, 1.51, 2.01, 2.51])
    learning.know_draft(draft).costs = Priced([0.001])
    return Engine(target, draft, learning=learning)


def draws(
    monkeypatch: pytest.MonkeyPatch, *, n: int, proposer: str, k: int | None = None
) -> tuple[NDArray[np.int64], int, int]:
    """(how often which token followed which, tokens drafted, accepted) in ``n`` tokens without a seed."""
    # A request without a seed takes one from the system: here the same ones every time.
    rng = random.Random(5)
    monkeypatch.setattr("localspec.engine.sequence.secrets.randbits", rng.getrandbits)
    counts, drafted, accepted = np.zeros((3, 3), dtype=np.int64), 0, 0
    options = Options(temperature=1.0, proposer=proposer, k=k, max_tokens=LENGTH)
    with engine() as one:
        for _ in range(n // LENGTH):
            sequence = one.submit(Request(prompt=TextPrompt("\0"), options=options))
            run_all(one, [sequence])
            for before, after in pairwise([0, *answer(sequence)]):
                counts[before, after] += 1
            drafted += sequence.stats.drafted
            accepted += sequence.stats.accepted
    return counts, drafted, accepted


def chi_square(counts: NDArray[np.int64]) -> float:
    """Against the target's own rows, all three together."""
    expected = counts.sum(axis=1, keepdims=True) * np.array(P)
    return float(((counts - expected) ** 2 / expected).sum())
