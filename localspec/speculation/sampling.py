"""The sampling pipeline: penalties → temperature → top-k → top-p → min-p.

Target and draft rows go through the same one, with the same penalty context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import top_margin
from localspec.speculation.noise import Noise, Stream


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Concrete values; the defaults switch every step off. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalises(self) -> bool:
        return self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities of the tokens that are left: two arrays of one shape; all others have none."""

    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def of(self, token: int) -> float:
        """The probability of one token."""
        return float(self.probabilities[self.tokens == token].sum())

    def sample(self, noise: Noise, position: int, stream: Stream) -> int:
        """A token, by the Gumbel-max trick."""
        return int(self.tokens[self.perturbed(noise, position, stream).argmax()])

    def perturbed(self, noise: Noise, position: int, stream: Stream) -> NDArray[np.float64]:
        """Log-probabilities plus Gumbel numbers: the largest is the sample."""
        with np.errstate(divide="ignore"):
            scores: NDArray[np.float64] = np.log(self.probabilities)
        return scores + noise.gumbel(position, stream, self.tokens)

    def minus(self, other: Distribution) -> Distribution:
        """``norm(max(0, self − other))``: what rejection sampling draws from after a rejection."""
        order = np.argsort(other.tokens)
        ids = other.tokens[order]
        at = np.minimum(np.searchsorted(ids, self.tokens), len(ids) - 1)
        shared = np.where(ids[at] == self.tokens, other.probabilities[order][at], 0.0)
        rest = np.maximum(self.probabilities - shared, 0.0)
        total = rest.sum()
        # p = q up to rounding: then a rejection has probability 0, and p itself is as good.
        return Distribution(self.tokens, rest / total) if total > 0 else self


class Pick(NamedTuple):
    """A choice, and how far in logits the runner-up was behind: a smaller error cannot change it."""

    token: int
    margin: float


class Sampler:
    """The pipeline of one request: its parameters, its randomness and its penalty context.

    The repetition penalty (Keskar et al., arXiv 1909.05858) covers prompt and answer; frequency
    and presence penalties cover the answer, as OpenAI's API defines them.
    """

    def __init__(
        self, params: SamplingParams, noise: Noise, *, seeded: bool, prompt: Iterable[int] = ()
    ) -> None:
        self.params = params
        self.noise = noise
        self.seeded = seeded
        self._seen = set(prompt) if params.penalises else set()
        self._counts: dict[int, int] = {}

    def observe(self, token: int) -> None:
        """``token`` is part of the answer now."""
        if self.params.penalises:
            self._seen.add(token)
            self._counts[token] = self._counts.get(token, 0) + 1

    def scores(self, row: NDArray[np.float32], drafted: Sequence[int]) -> NDArray[np.float64]:
        """``row`` (shape (vocabulary,)) after the penalties; ``drafted`` precedes this position."""
        scores = row.astype(np.float64)
        if not self.params.penalises:
            return scores
        seen = np.fromiter(self._seen.union(drafted), dtype=np.int64)
        seen = seen[seen < len(scores)]
        values = scores[seen]
        penalty = self.params.repeat_penalty
        scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        counts = dict(self._counts)
        for token in drafted:
            counts[token] = counts.get(token, 0) + 1
        for token, count in counts.items():
            if token < len(scores):
                scores[token] -= self.params.frequency_penalty * count + self.params.presence_penalty
        return scores

    def distribution(self, row: NDArray[np.float32], drafted: Sequence[int]) -> Distribution:
        """What the next token is drawn from. At temperature 0: the plain softmax after the penalties."""
        params = self.params
        scores = self.scores(row, drafted)
        tokens = np.arange(len(scores), dtype=np.int64)
        if 0 < params.top_k < len(scores):
            tokens = np.sort(np.argpartition(scores, -params.top_k)[-params.top_k :])
            scores = scores[tokens]
        weights = np.exp((scores - scores.max()) / (params.temperature or 1.0))
        probabilities = weights / weights.sum()
        if params.top_p < 1.0:
            kept = _nucleus(probabilities, params.top_p)
            tokens, probabilities = tokens[kept], probabilities[kept] / probabilities[kept].sum()
        if params.min_p > 0.0:
            kept = np.flatnonzero(probabilities >= params.min_p * probabilities.max())
            tokens, probabilities = tokens[kept], probabilities[kept] / probabilities[kept].sum()
        return Distribution(tokens, probabilities)

    def pick(self, row: NDArray[np.float32], drafted: Sequence[int], position: int) -> Pick:
        """The target's own choice for ``position``: greedy, or its sample under the seed."""
        if self.params.greedy:
            scores = self.scores(row, drafted)
            return Pick(int(scores.argmax()), top_margin(scores))
        distribution = self.distribution(row, drafted)
        perturbed = distribution.perturbed(self.noise, position, Stream.TARGET)
        token = int(distribution.tokens[perturbed.argmax()])
        return Pick(token, top_margin(perturbed) * self.params.temperature)


NUCLEUS_GUESS = 1024


def _nucleus(probabilities: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices of the fewest most probable tokens whose mass reaches ``top_p`` (Holtzman et al., 1904.09751).

    Sorting a whole vocabulary is slow, so the head is tried first.
    """
    if len(probabilities) > NUCLEUS_GUESS:
        head = np.argpartition(probabilities, -NUCLEUS_GUESS)[-NUCLEUS_GUESS:]
        if probabilities[head].sum() < top_p:
            head = np.arange(len(probabilities))
    else:
        head = np.arange(len(probabilities))
    order = head[np.argsort(-probabilities[head], kind="stable")]
    mass = np.cumsum(probabilities[order])
    kept: NDArray[np.int64] = np.sort(order[: int(np.searchsorted(mass, top_p)) + 1])
    return kept
