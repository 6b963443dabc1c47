"""The sampling pipeline: logit bias → penalties → mask → temperature → top-k → top-p → min-p → choice.

Rows of target and draft model go through the same pipeline, with the same penalty context and the same mask:
only so is rejection sampling of constrained answers lossless.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError
from localspec.speculation.cuts import Cuts, Scores, cut, sum_of, surely_keeps, weigh
from localspec.speculation.noise import Noise, NoiseStream

COLD = 1e-4
"""temperature below which sampling is greedy: logits in single precision are too coarse for it"""
WARM = 1.0
"""temperature from which a token is drawn among all before top-p is applied: the nucleus can be large, and
the winner of all is the nucleus's own if it is inside"""
CERTAIN = np.float32(1e30)
"""stands for an infinite logit, so that differences are finite"""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The values of a request; the defaults switch every step off. Temperatures below COLD are greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int | None = None
    """number of newest tokens that penalties apply to; None or negative: all"""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """pairs of a token and the number added to its logit"""
    greedy: bool = field(init=False)
    penalises: bool = field(init=False)
    alters: bool = field(init=False)
    """True if a logit bias or penalties change logits before a token is chosen"""
    takes_argmax: bool = field(init=False)
    """True if the choice is the argmax of the unchanged row"""

    def __post_init__(self) -> None:
        # Computed once: these are read in every round.
        penalties = (self.repeat_penalty - 1.0, self.frequency_penalty, self.presence_penalty)
        penalises = self.repeat_last_n != 0 and any(penalties)
        greedy, alters = self.temperature < COLD, penalises or bool(self.logit_bias)
        computed = {"greedy": greedy, "penalises": penalises, "alters": alters}
        for name, value in (computed | {"takes_argmax": greedy and not alters}).items():
            object.__setattr__(self, name, value)

    @property
    def cuts(self) -> Cuts:
        """The temperature of the softmax, 1 for greedy requests, and the cuts of a row."""
        temperature = 1.0 if self.greedy else self.temperature
        return Cuts(temperature, self.top_k, self.top_p, self.min_p)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The probabilities of the tokens left after all cuts, in two arrays of one shape; all others have 0."""

    tokens: NDArray[np.int64]
    """ids, rising"""
    probabilities: NDArray[np.floating[Any]]

    def of(self, token: int) -> float:
        at = int(np.searchsorted(self.tokens, token))
        return float(self.probabilities[at]) if at < len(self.tokens) and self.tokens[at] == token else 0.0

    def sample(self, noise: Noise, position: int, stream: NoiseStream) -> int:
        """Draw a token by the Gumbel-max trick."""
        with np.errstate(divide="ignore"):
            scores = np.log(self.probabilities, dtype=np.float32)
        return int(self.tokens[noise.race(position, stream, scores, 1.0, self.tokens)])

    def minus(self, other: Distribution) -> Distribution:
        """``norm(max(0, self − other))``: the distribution that a rejection's token is drawn from."""
        at = np.minimum(np.searchsorted(self.tokens, other.tokens), len(self.tokens) - 1)
        shared = self.tokens[at] == other.tokens
        rest = self.probabilities.copy()
        rest[at[shared]] -= other.probabilities[shared]
        rest = np.maximum(rest, 0.0)
        total = rest.sum()
        # p = q up to rounding: then a rejection has probability 0, and p itself will do.
        return Distribution(self.tokens, rest / total) if total > 0 else self


class Mask(Protocol):
    """The tokens that a grammar allows after the answer so far and the tokens ``drafted``."""

    def mask_allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
        """Return a mask of the allowed tokens, shape (vocabulary,)."""

    def allows(self, token: int, drafted: Sequence[int]) -> bool:
        """True if ``token`` is allowed."""

    def only(self, drafted: Sequence[int]) -> int | None:
        """The token that is forced; None if there is a choice."""


class Past:
    """The tokens that penalties apply to: prompt and answer."""

    def __init__(self, prompt: Iterable[int]) -> None:
        self._seen = set(prompt)
        self._counts: Counter[int] = Counter()

    def observe(self, token: int) -> None:
        self._seen.add(token)
        self._counts[token] += 1

    def with_draft(self, drafted: Sequence[int]) -> tuple[set[int], Counter[int]]:
        """Return all tokens before the position after ``drafted``, and their counts in the answer."""
        counts = self._counts.copy()
        counts.update(drafted)
        return self._seen.union(drafted), counts


class RecentPast(Past):
    """The tokens that penalties apply to: the last ``n`` of prompt and answer."""

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
    """Return the tokens that these penalties apply to; none if there are no penalties."""
    if not params.penalises:
        return Past(())
    last_n = params.repeat_last_n
    return Past(prompt) if last_n is None or last_n < 0 else RecentPast(prompt, last_n)


class Sampler:
    """The pipeline of one request: its parameters, its randomness and its penalty context.

    The repetition penalty (Keskar et al., arXiv 1909.05858) covers prompt and answer; frequency
    and presence penalties cover the answer, as OpenAI's API defines them. If ``repeat_last_n`` is set,
    only so many newest tokens count, as in llama.cpp's sampler.
    """

    def __init__(
        self,
        params: SamplingParams,
        noise: Noise,
        *,
        seeded: bool,
        prompt: Iterable[int] = (),
        mask: Mask | None = None,
    ) -> None:
        self.params = params
        self.noise = noise
        self.seeded = seeded
        self.mask = mask
        self.takes_argmax = params.takes_argmax and mask is None
        """True if the choice is the argmax of the row, whatever it is"""
        self._past = past_of(params, prompt)
        bias = dict(params.logit_bias)
        self._biased = np.fromiter(bias, dtype=np.int64)
        self._bias = np.fromiter(bias.values(), dtype=np.float32)
        self._memory: Scores = np.empty(0, dtype=np.float32)

    def observe(self, token: int) -> None:
        """Append ``token`` to the answer; of no effect without penalties."""
        self._past.observe(token)

    def scores(self, row: NDArray[np.float32], drafted: Sequence[int]) -> tuple[Scores, float]:
        """Return ``row``, shape (vocabulary,), after logit bias, penalties and mask, and the largest of it;
        ``drafted`` precedes it. If none is set it is ``row`` itself, which must not be written to. NaN and
        tokens that are not allowed become −inf; raises :class:`EngineError` if nothing else is left."""
        row, top = numbers(row)
        if not self.params.alters and self.mask is None:
            return row, top
        scores = row.copy()
        if len(self._biased):
            there = self._biased < len(scores)  # a draft model's vocabulary may be smaller
            scores[self._biased[there]] += self._bias[there]
        if self.params.penalises:
            self._penalise(scores, drafted)
        if self.mask is not None:
            np.copyto(scores, -np.inf, where=~self.mask.mask_allowed(drafted)[: len(scores)])
        return numbers(scores)

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
        """Return the distribution of the next token; at temperature 0 that of temperature 1. Raises as
        :meth:`scores` does."""
        (scores, top), cuts = self.scores(row, drafted), self.params.cuts
        if not cuts.any:
            weights = weigh(scores, top, cuts.temperature, np.empty_like(scores))
            return Distribution(_all_ids(len(scores)), weights / np.float32(sum_of(weights)))
        tokens = cut(scores, top, cuts, self._scratch(len(scores)))
        logits = scores[tokens].astype(np.float64)
        chances = np.exp((logits - logits.max()) / cuts.temperature)
        return Distribution(tokens, chances / chances.sum())

    def pick(self, row: NDArray[np.float32], drafted: Sequence[int], position: int) -> int:
        """Return the target's own choice for ``position``: greedy, or its sample under the seed."""
        scores, top = self.scores(row, drafted)
        if self.params.greedy:
            return int(scores.argmax())
        cuts, race = self.params.cuts, self.noise.race
        if not cuts.any:
            return race(position, NoiseStream.TARGET, scores, cuts.temperature)
        scratch = self._scratch(len(scores))
        if cuts.top_p < 1.0 and not cuts.top_k and cuts.temperature >= WARM:
            token = race(position, NoiseStream.TARGET, scores, cuts.temperature)
            if surely_keeps(scores, top, cuts, token, scratch):
                return token
        tokens = cut(scores, top, cuts, scratch)
        if len(tokens) == 1:
            return int(tokens[0])
        return int(tokens[race(position, NoiseStream.TARGET, scores[tokens], cuts.temperature, tokens)])

    def _scratch(self, size: int) -> Scores:
        if len(self._memory) < size:
            self._memory = np.empty(size, dtype=np.float32)
        return self._memory[:size]


def numbers(scores: Scores) -> tuple[Scores, float]:
    """Return ``scores`` with NaN replaced by −inf, and +inf by :data:`CERTAIN`, and the largest of them;
    unchanged if that is finite. Raises :class:`EngineError` if no score is left."""
    if math.isfinite(top := float(scores.max())):
        return scores, top
    found = np.where(np.isnan(scores), np.float32(-np.inf), np.minimum(scores, CERTAIN))
    if (top := float(found.max())) == -math.inf:
        raise EngineError(
            "the model's output has no valid number: all logits are NaN or minus infinity",
            "Load the model again; if that does not help, its file is damaged or does not fit this backend.",
        )
    return found, top


@lru_cache(maxsize=4)
def _all_ids(size: int) -> NDArray[np.int64]:
    return np.arange(size)
