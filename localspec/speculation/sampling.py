"""The sampling pipeline: logit bias → penalties → temperature → top-k → top-p → min-p.

Target and draft rows go through the same one, with the same penalty context.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import top_margin
from localspec.speculation.noise import Noise, Stream

COLD = 1e-4
"""under this a logit of single precision cannot be told from the next one"""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Concrete values; the defaults switch every step off. Temperature 0 is greedy, and next to 0 as well."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int | None = None
    """tokens that penalties look back at; None and less than 0: all"""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """tokens, and what is added to their logits"""

    @property
    def greedy(self) -> bool:
        return self.temperature < COLD

    @property
    def penalises(self) -> bool:
        if self.repeat_last_n == 0:
            return False
        return self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0

    @property
    def alters(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        return self.penalises or bool(self.logit_bias)

    @property
    def cuts(self) -> bool:
        """Whether some tokens are left without a chance."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


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


class Past:
    """The tokens that penalties look at: prompt and answer."""

    def __init__(self, prompt: Iterable[int]) -> None:
        self._seen = set(prompt)
        self._counts: Counter[int] = Counter()

    def observe(self, token: int) -> None:
        """``token`` is part of the answer now."""
        self._seen.add(token)
        self._counts[token] += 1

    def with_draft(self, drafted: Sequence[int]) -> tuple[set[int], Counter[int]]:
        """All tokens before a position that ``drafted`` precedes, and how often the answer has each."""
        counts = self._counts.copy()
        counts.update(drafted)
        return self._seen.union(drafted), counts


class RecentPast(Past):
    """The last ``n`` tokens of prompt and answer."""

    def __init__(self, prompt: Iterable[int], n: int) -> None:
        self._n = n
        self._recent = deque(prompt, maxlen=n)
        self._answered = 0

    def observe(self, token: int) -> None:
        self._recent.append(token)
        self._answered += 1

    def with_draft(self, drafted: Sequence[int]) -> tuple[set[int], Counter[int]]:
        recent = [*self._recent, *drafted][-self._n :]
        answer = recent[max(0, len(recent) - self._answered - len(drafted)) :]
        return set(recent), Counter(answer)


def past_of(params: SamplingParams, prompt: Iterable[int]) -> Past:
    """The tokens that these penalties look at; none if there are no penalties."""
    if not params.penalises:
        return Past(())
    last_n = params.repeat_last_n
    return Past(prompt) if last_n is None or last_n < 0 else RecentPast(prompt, last_n)


class Sampler:
    """The pipeline of one request: its parameters, its randomness and its penalty context.

    The repetition penalty (Keskar et al., arXiv 1909.05858) covers prompt and answer; frequency
    and presence penalties cover the answer, as OpenAI's API defines them. Of both the last
    ``repeat_last_n`` tokens are looked at, if that is set, as llama.cpp's sampler does.
    """

    def __init__(
        self, params: SamplingParams, noise: Noise, *, seeded: bool, prompt: Iterable[int] = ()
    ) -> None:
        self.params = params
        self.noise = noise
        self.seeded = seeded
        self._past = past_of(params, prompt)
        bias = dict(params.logit_bias)
        self._biased = np.fromiter(bias, dtype=np.int64)
        self._bias = np.fromiter(bias.values(), dtype=np.float32)

    def observe(self, token: int) -> None:
        """``token`` is part of the answer now."""
        if self.params.penalises:
            self._past.observe(token)

    def scores(self, row: NDArray[np.float32], drafted: Sequence[int]) -> NDArray[np.float32]:
        """``row`` (shape (vocabulary,)) after logit bias and penalties; ``drafted`` precedes this position.

        Without both it is ``row`` itself: not to be written to.
        """
        if not self.params.alters:
            return row
        scores = row.copy()
        if len(self._biased):
            there = self._biased < len(scores)  # a draft model's vocabulary may be smaller
            scores[self._biased[there]] += self._bias[there]
        if self.params.penalises:
            self._penalise(scores, drafted)
        return scores

    def _penalise(self, scores: NDArray[np.float32], drafted: Sequence[int]) -> None:
        tokens, counts = self._past.with_draft(drafted)
        seen = np.fromiter(tokens, dtype=np.int64)
        seen = seen[seen < len(scores)]
        values = scores[seen]
        penalty = self.params.repeat_penalty
        scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        for token, count in counts.items():
            if token < len(scores):
                scores[token] -= self.params.frequency_penalty * count + self.params.presence_penalty

    def distribution(self, row: NDArray[np.float32], drafted: Sequence[int]) -> Distribution:
        """What the next token is drawn from. At temperature 0: the plain softmax after the penalties."""
        params = self.params
        scores = self.scores(row, drafted)
        tokens = _contenders(scores, params)
        logits = scores[tokens].astype(np.float64)
        weights = np.exp((logits - logits.max()) / (params.temperature or 1.0))
        probabilities = weights / weights.sum()
        if params.top_p < 1.0:
            kept = _nucleus(probabilities, params.top_p)
            tokens, probabilities = tokens[kept], probabilities[kept] / probabilities[kept].sum()
        if params.min_p > 0.0:
            kept = np.flatnonzero(probabilities >= params.min_p * probabilities.max())
            tokens, probabilities = tokens[kept], probabilities[kept] / probabilities[kept].sum()
        return Distribution(tokens, probabilities)

    def pick(self, row: NDArray[np.float32], drafted: Sequence[int], position: int) -> int:
        """The target's own choice for ``position``: greedy, or its sample under the seed."""
        if self.params.greedy:
            return int(self.scores(row, drafted).argmax())
        if self.params.cuts:
            return self.distribution(row, drafted).sample(self.noise, position, Stream.TARGET)
        return self._race(row, drafted, position)[0]

    def _race(self, row: NDArray[np.float32], drafted: Sequence[int], position: int) -> tuple[int, float]:
        scores = self.scores(row, drafted)
        return self.noise.race(position, Stream.TARGET, scores, self.params.temperature)

    def margin(self, row: NDArray[np.float32], drafted: Sequence[int], position: int) -> float:
        """How far the logits of two tokens must move against each other before :meth:`pick` may change.

        A token that is cut off counts as far away as it is from the cut.
        """
        scores = self.scores(row, drafted)
        # A penalty multiplies rounding errors as it does scores.
        stretch = max(self.params.repeat_penalty, 1 / self.params.repeat_penalty)
        if self.params.greedy:
            return top_margin(scores) / stretch
        if not self.params.cuts:
            return self._race(row, drafted, position)[1] * self.params.temperature / stretch
        logits, temperature = scores.astype(np.float64), self.params.temperature
        tokens = np.arange(len(logits), dtype=np.int64)
        perturbed = logits + temperature * self.noise.gumbel(position, Stream.TARGET, tokens)
        inside = cut_distances(logits, self.params)
        chosen = int(np.where(inside >= 0, perturbed, -np.inf).argmax())
        others = np.maximum(perturbed[chosen] - perturbed, -inside)
        others[chosen] = inside[chosen]
        return float(others.min()) / stretch


def _contenders(scores: NDArray[np.float32], params: SamplingParams) -> NDArray[np.int64]:
    """Token ids, rising: what top-k leaves, and where only min-p cuts, at least what it leaves."""
    if 0 < params.top_k < len(scores):
        head = _within(scores, REACH)
        if len(head) < params.top_k:
            head = np.arange(len(scores))
        best = np.argpartition(scores[head], -params.top_k)[-params.top_k :]
        return np.sort(head[best])
    if params.min_p > 0.0 and params.top_p == 1.0:
        # Lower by what single precision may be off; the cut itself comes at the end.
        return _within(scores, 1.0 - (params.temperature or 1.0) * math.log(params.min_p))
    return np.arange(len(scores))


REACH = 10.0
"""logits; the best few dozen tokens are seldom further from the best one"""


def _within(scores: NDArray[np.float32], reach: float) -> NDArray[np.int64]:
    """Indices of all that are at most so far from the largest."""
    return np.flatnonzero(scores >= scores.max() - np.float32(reach))


def cut_distances(scores: NDArray[np.float64], params: SamplingParams) -> NDArray[np.float64]:
    """For every token, in logits: how far inside top-k, top-p and min-p it is, or (negative) outside."""
    distances = np.full(len(scores), np.inf)
    order = np.argsort(-scores, kind="stable")
    temperature = params.temperature or 1.0
    k = params.top_k if 0 < params.top_k < len(scores) else len(scores)
    if k < len(scores):
        distances[order[:k]] = scores[order[:k]] - scores[order[k]]
        distances[order[k:]] = scores[order[k:]] - scores[order[k - 1]]
    if params.top_p < 1.0:
        kept = order[:k]
        inside = _nucleus_distances(scores[kept[:NUCLEUS_GUESS]], scores[kept], params)
        if inside[-1] >= 0 and len(inside) < k:
            inside = _nucleus_distances(scores[kept], scores[kept], params)
        # What comes after the head is outside, at least as far as the head's last one.
        inside = np.concatenate((inside, np.full(k - len(inside), inside[-1])))
        distances[kept] = np.minimum(distances[kept], inside)
    if params.min_p > 0.0:
        distances = np.minimum(distances, scores - (scores.max() + temperature * np.log(params.min_p)))
    return distances


NUCLEUS_STEPS = 10
FAR = 8.0
"""logits; no backend's rounding comes near"""


def _nucleus_distances(
    head: NDArray[np.float64], kept: NDArray[np.float64], params: SamplingParams
) -> NDArray[np.float64]:
    """Of the best tokens, falling: how far each is inside the nucleus, or (negative) outside.

    While logits move by x against each other, tokens closer than x may change places, and the odds
    of a mass change by exp(x / temperature): found by bisection. Tokens further down are far outside.
    """
    temperature = params.temperature or 1.0
    weights = np.exp((kept - kept[0]) / temperature)
    mass = np.concatenate(([0.0], np.cumsum(weights) / weights.sum()))
    limit = np.log(params.top_p) - np.log1p(-params.top_p)
    own = weights[: len(head)] / weights.sum()
    inside = mass[: len(head)] < params.top_p

    def stays(x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each token stays on its side when logits move by x."""
        above = mass[np.searchsorted(-kept, -(head + np.where(inside, -x, x)), side="right")]
        above = np.clip(np.where(inside, above - own, above), 0.0, 1.0)
        with np.errstate(divide="ignore"):
            odds = np.log(above) - np.log1p(-above)
        held: NDArray[np.bool_] = np.where(
            inside, odds + x / temperature < limit, odds - x / temperature >= limit
        )
        return held

    low, high = np.zeros(len(head)), np.full(len(head), FAR)
    for _ in range(NUCLEUS_STEPS):
        middle = (low + high) / 2
        held = stays(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return np.where(inside, low, -low)


NUCLEUS_GUESS = 1024
NUCLEUS_HEAD = 1e-3


def _nucleus(probabilities: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices of the fewest most probable tokens whose mass reaches ``top_p`` (Holtzman et al., 1904.09751).

    Sorting a whole vocabulary is slow: those not much less probable than the best are tried first.
    """
    head = np.flatnonzero(probabilities >= NUCLEUS_HEAD * probabilities.max())
    if probabilities[head].sum() < top_p:
        head = np.arange(len(probabilities))
    order = head[np.argsort(-probabilities[head], kind="stable")]
    mass = np.cumsum(probabilities[order])
    kept: NDArray[np.int64] = np.sort(order[: int(np.searchsorted(mass, top_p)) + 1])
    return kept
