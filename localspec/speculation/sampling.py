"""The sampling pipeline: logit bias → penalties → mask → temperature → top-k → top-p → min-p → choice.

Rows of target and draft model go through the same pipeline, with the same penalty context and the same mask:
only so is rejection sampling of constrained answers lossless. For the cuts a row is read a few times, in
single precision, and only its best tokens are sorted. The tokens that they leave depend on the row alone: of
equal logits the lowest ids come first, and sums are taken in a fixed order.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError

Scores = NDArray[np.float32]
Ids = NDArray[np.int64]

SORTED = 4096
"""the most tokens that are sorted; more are put into bins first"""
BINS = 1 << 14
LEVEL = 1e-3
"""weight relative to the best token's; tokens above it usually contain the nucleus"""
CLOSE = 1e-9
"""share of a row's weight below which the order of a sum could matter"""
ROWS = 32
"""rows of a folded vocabulary; the k-th largest maximum of its columns is at most the k-th largest logit"""


class Cuts(NamedTuple):
    """The parameters; the defaults switch every cut off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def any(self) -> bool:
        """True if any of top-k, top-p and min-p is switched on."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def depth(self) -> float:
        """The distance below the largest logit at which min-p cuts."""
        return -self.temperature * math.log(self.min_p) if self.min_p > 0.0 else math.inf


def cut(scores: Scores, cuts: Cuts, scratch: Scores) -> Ids:
    """Return the tokens, rising, that top-k, top-p and min-p, in this order, leave of a row of which at least
    one logit is finite.

    ``scratch`` has the row's shape and is overwritten.
    """
    top = float(scores.max())
    tokens = best(scores, cuts.top_k) if 0 < cuts.top_k < len(scores) else None
    if cuts.top_p < 1.0:
        values = scores if tokens is None else scores[tokens]
        weights = weigh(values, top, cuts.temperature, scratch[: len(values)])
        inside = _nucleus(values, weights, cuts.top_p, sum_of(weights))
        tokens = inside if tokens is None else tokens[inside]
    if cuts.min_p > 0.0:
        floor = np.float32(top - cuts.depth)
        tokens = np.flatnonzero(scores >= floor) if tokens is None else tokens[scores[tokens] >= floor]
    return np.arange(len(scores)) if tokens is None else tokens


def surely_keeps(scores: Scores, cuts: Cuts, token: int, scratch: Scores) -> bool:
    """True if :func:`cut` without top-k keeps ``token``; False also if rounding could decide that.

    Takes two passes over the row, however many tokens the nucleus has.
    """
    top, own = float(scores.max()), scores[token]
    if cuts.min_p > 0.0 and own < np.float32(top - cuts.depth):
        return False
    weights = weigh(scores, top, cuts.temperature, scratch)
    total = sum_of(weights)
    return sum_of(weights[scores >= own]) - float(weights[token]) < (cuts.top_p - CLOSE) * total


def weigh(values: Scores, top: float, temperature: float, out: Scores) -> Scores:
    """``exp((values − top) / temperature)``, written to ``out``."""
    with np.errstate(over="ignore"):  # to minus infinity, which weighs nothing
        np.subtract(values, np.float32(top), out=out)
        np.divide(out, np.float32(temperature), out=out)
    return np.exp(out, out=out)


def sum_of(weights: Scores) -> float:
    """The sum in double precision."""
    return float(np.add.reduce(weights, dtype=np.float64))


def best(scores: Scores, k: int) -> Ids:
    """Ids of the ``k`` largest, rising; of equal ones the first."""
    tokens = np.flatnonzero(scores >= _least_of_best(scores, k))
    values = scores[tokens]
    least = np.partition(values, len(values) - k)[len(values) - k]
    taken = values > least
    taken[np.flatnonzero(values == least)[: k - np.count_nonzero(taken)]] = True
    found: Ids = tokens[taken]
    return found


def _least_of_best(scores: Scores, k: int) -> np.float32:
    """A number that at least ``k`` of the scores reach, and not many more."""
    columns = len(scores) // ROWS
    if k > columns:
        return np.float32(np.partition(scores, len(scores) - k)[len(scores) - k])
    maxima = scores[: columns * ROWS].reshape(ROWS, columns).max(axis=0)
    return np.float32(np.partition(maxima, columns - k)[columns - k])


def _nucleus(values: Scores, weights: Scores, top_p: float, total: float) -> Ids:
    """Indices, rising, of the fewest largest whose weight reaches ``top_p`` of the total (Holtzman et al.,
    1904.09751)."""
    need = top_p * total
    head = _heaviest(weights, need, (1.0 - top_p) * total)
    kept, rest, before = _bins_inside(values[head], weights[head], need)
    order = rest[np.argsort(-values[head[rest]], kind="stable")]
    mass = np.cumsum(weights[head[order]], dtype=np.float64)
    kept[order[: int(np.searchsorted(mass, need - before)) + 1]] = True
    found: Ids = head[kept]
    return found


def _heaviest(weights: Scores, need: float, rest: float) -> Ids:
    """Indices of the largest weights, which together reach ``need``; the others may sum to ``rest``."""
    for level in (LEVEL, 0.99 * rest / len(weights)):
        head = np.flatnonzero(weights >= level)
        if sum_of(weights[head]) >= need:
            return head
    return np.flatnonzero(weights)


def _bins_inside(values: Scores, weights: Scores, need: float) -> tuple[NDArray[np.bool_], Ids, float]:
    """Return a mask of the values certainly in the nucleus, the indices of the values that must be sorted to
    find the rest of it, and the summed weight of the former. All others are outside."""
    if len(values) <= SORTED:
        return np.zeros(len(values), dtype=np.bool_), np.arange(len(values)), 0.0
    top, bottom = float(values.max()), float(values.min())
    width = max((top - bottom) / (BINS - 1), 1e-30)
    keys = ((np.float32(top) - values) / np.float32(width)).astype(np.intp)
    mass = np.cumsum(np.bincount(keys, weights=weights))
    last = min(int(np.searchsorted(mass, need)), len(mass) - 1)
    before = float(mass[last - 1]) if last else 0.0
    return keys < last, np.flatnonzero(keys == last), before


_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ROUNDS = (16, 0x21F0AAAD), (15, 0xD35A2D97)
_LAST_SHIFT = 15

_LUCKY = 2**32 - 2**23
"""one number in 512 is at least this"""
_SLACK = 1e-3
"""more than the rounding error of a score in single precision"""


class Stream(IntEnum):
    """The use of a random number; streams are independent of each other."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def _mix(x: int) -> int:
    x = (x ^ (x >> 30)) * _MIX_1 & _MASK
    x = (x ^ (x >> 27)) * _MIX_2 & _MASK
    return x ^ (x >> 31)


class Noise:
    """The random numbers of one request: a number depends on (seed, position, stream) alone.

    So a seeded text depends on the model, the request and the seed, and not on the proposer, the draft
    lengths, or the other requests of a batch. The mixer is splitmix64 (Steele, Lea, Flood: "Fast splittable
    pseudorandom number generators", OOPSLA 2014); the numbers for a whole vocabulary come from a 32-bit
    mixer, which is four times as fast (Wellons, https://github.com/skeeto/hash-prospector).
    """

    def __init__(self, seed: int) -> None:
        self._seed = _mix((seed + _GOLDEN) & _MASK)
        self._scratch = np.empty((2, 0), dtype=np.uint32)

    def _key(self, position: int, stream: Stream) -> int:
        return _mix((self._seed + _GOLDEN * (position * len(Stream) + stream + 1)) & _MASK)

    def uniform(self, position: int, stream: Stream) -> float:
        """A number in (0, 1)."""
        return ((_mix(self._key(position, stream)) >> 11) + 0.5) * 2.0**-53

    def gumbel(self, position: int, stream: Stream, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """A standard Gumbel number for every token, shape of ``tokens``.

        ``argmax(log p + gumbel)`` is a sample of p. A draft and a target that use the same numbers
        pick the same token far more often than two independent samples would.
        """
        return _gumbel(self._bits(position, stream, tokens.astype(np.uint32)))

    def race(
        self,
        position: int,
        stream: Stream,
        logits: NDArray[np.float32],
        temperature: float = 1.0,
        tokens: NDArray[np.int64] | None = None,
    ) -> int:
        """Return the index of the largest of ``logits / temperature + gumbel``.

        ``logits`` are those of ``tokens``, or of a whole vocabulary, shape (vocabulary,), if these are not
        given. Logarithms are taken only of large random numbers, and of those whose logit could make up
        for a smaller number.
        """
        bits = self._bits(position, stream, _ids(len(logits)) if tokens is None else tokens.astype(np.uint32))
        lucky = np.flatnonzero(bits >= _LUCKY)
        known = logits[lucky] / temperature + _gumbel(bits[lucky])
        least = float(known.max(initial=-math.inf))
        near = logits >= temperature * (least - _LUCKY_GUMBEL - _SLACK)
        near[lucky] = True
        at = np.flatnonzero(near)
        return int(at[(logits[at] / temperature + _gumbel(bits[at])).argmax()])

    def _bits(self, position: int, stream: Stream, tokens: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return a random number for every token, valid until the next call."""
        if self._scratch.shape[1] < len(tokens):
            # Kept, because fresh memory for a large vocabulary takes four times as long as the arithmetic.
            self._scratch = np.empty((2, len(tokens)), dtype=np.uint32)
        x: NDArray[np.uint32] = self._scratch[0, : len(tokens)]
        shifted = self._scratch[1, : len(tokens)]
        key = self._key(position, stream)
        np.multiply(tokens, np.uint32(key >> 32 | 1), out=x)
        x += np.uint32(key & 0xFFFFFFFF)
        for shift, factor in _ROUNDS:
            x ^= np.right_shift(x, shift, out=shifted)
            x *= np.uint32(factor)
        x ^= np.right_shift(x, _LAST_SHIFT, out=shifted)
        return x


@lru_cache(maxsize=4)
def _ids(vocabulary: int) -> NDArray[np.uint32]:
    return np.arange(vocabulary, dtype=np.uint32)


def _gumbel(bits: NDArray[np.uint32]) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = -np.log(-np.log((bits + 0.5) * 2.0**-32))
    return numbers


_LUCKY_GUMBEL = float(_gumbel(np.array([_LUCKY], dtype=np.uint32))[0])


COLD = 1e-4
"""temperature below which sampling is greedy: logits in single precision are too coarse for it"""


WARM = 1.0
"""temperature from which a token is drawn among all before top-p is applied: the nucleus can be large, and
the winner of all is the nucleus's own if it is inside"""
FEW = 2048
"""tokens up to which all random numbers are computed"""


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
        for name, value in (
            ("greedy", greedy),
            ("penalises", penalises),
            ("alters", alters),
            ("takes_argmax", greedy and not alters),
        ):
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
        """The probability of one token."""
        at = int(np.searchsorted(self.tokens, token))
        return float(self.probabilities[at]) if at < len(self.tokens) and self.tokens[at] == token else 0.0

    def sample(self, noise: Noise, position: int, stream: Stream) -> int:
        """Draw a token by the Gumbel-max trick."""
        with np.errstate(divide="ignore"):
            if len(self.tokens) > FEW:
                scores = np.log(self.probabilities, dtype=np.float32)
                return int(self.tokens[noise.race(position, stream, scores, 1.0, self.tokens)])
            perturbed = np.log(self.probabilities) + noise.gumbel(position, stream, self.tokens)
        return int(self.tokens[perturbed.argmax()])

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

    def allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
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
        """Append ``token`` to the answer."""
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

    def scores(self, row: NDArray[np.float32], drafted: Sequence[int]) -> NDArray[np.float32]:
        """Return ``row``, shape (vocabulary,), after logit bias, penalties and mask; ``drafted`` precedes it.

        If none is set it is ``row`` itself, which must not be written to. NaN and tokens that are not allowed
        become −inf; raises :class:`EngineError` if nothing else is left.
        """
        row = numbers(row)
        if not self.params.alters and self.mask is None:
            return row
        scores = row.copy()
        if len(self._biased):
            there = self._biased < len(scores)  # a draft model's vocabulary may be smaller
            scores[self._biased[there]] += self._bias[there]
        if self.params.penalises:
            self._penalise(scores, drafted)
        if self.mask is None:
            return scores
        np.copyto(scores, -np.inf, where=~self.mask.allowed(drafted)[: len(scores)])
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
        """Return the distribution of the next token; at temperature 0 that of temperature 1.

        Raises as :meth:`scores` does.
        """
        scores, cuts = self.scores(row, drafted), self.params.cuts
        if not cuts.any:
            weights = weigh(scores, float(scores.max()), cuts.temperature, np.empty_like(scores))
            return Distribution(_all_ids(len(scores)), weights / np.float32(sum_of(weights)))
        tokens = cut(scores, cuts, self._scratch(len(scores)))
        logits = scores[tokens].astype(np.float64)
        chances = np.exp((logits - logits.max()) / cuts.temperature)
        return Distribution(tokens, chances / chances.sum())

    def pick(self, row: NDArray[np.float32], drafted: Sequence[int], position: int) -> int:
        """Return the target's own choice for ``position``: greedy, or its sample under the seed."""
        scores = self.scores(row, drafted)
        if self.params.greedy:
            return int(scores.argmax())
        cuts, race = self.params.cuts, self.noise.race
        if not cuts.any:
            return race(position, Stream.TARGET, scores, cuts.temperature)
        scratch = self._scratch(len(scores))
        if cuts.top_p < 1.0 and not cuts.top_k and cuts.temperature >= WARM:
            token = race(position, Stream.TARGET, scores, cuts.temperature)
            if surely_keeps(scores, cuts, token, scratch):
                return token
        tokens = cut(scores, cuts, scratch)
        return int(tokens[race(position, Stream.TARGET, scores[tokens], cuts.temperature, tokens)])

    def _scratch(self, size: int) -> Scores:
        if len(self._memory) < size:
            self._memory = np.empty(size, dtype=np.float32)
        return self._memory[:size]


CERTAIN = np.float32(1e30)
"""stands for an infinite logit, so that differences are finite"""


def numbers(scores: Scores) -> Scores:
    """Return ``scores`` with NaN replaced by −inf, and +inf by :data:`CERTAIN`; unchanged if the largest
    score is finite. Raises :class:`EngineError` if no score is left.
    """
    if math.isfinite(scores.max()):
        return scores
    found = np.where(np.isnan(scores), np.float32(-np.inf), np.minimum(scores, CERTAIN))
    if found.max() == -np.inf:
        raise EngineError(
            "the model's output has no valid number: all logits are NaN or minus infinity",
            "Load the model again; if that does not help, its file is damaged or does not fit this backend.",
        )
    return found


@lru_cache(maxsize=4)
def _all_ids(size: int) -> NDArray[np.int64]:
    return np.arange(size)
