"""Two ceilings: the speed of the best choice in hindsight.

The **router oracle** picks a proposer and a length for every round, with the number of accepted
tokens of each offered draft known. The **true-continuation oracle** drafts the text itself. Both are
exact minima over the token log of a plain answer, by dynamic programming on a cost curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from localspec.backends.base import Backend, Span
from localspec.bench.curve import CostLine
from localspec.bench.log import Log
from localspec.speculation.draft import Ask, shared_length
from localspec.speculation.noise import Noise
from localspec.speculation.proposer import Proposer
from localspec.speculation.sampling import Sampler, SamplingParams

MOST = 20
"""tokens of the longest draft that the options allow"""


class Offers(NamedTuple):
    """The drafts of one proposer along a text.

    ``right[i]`` tokens of its draft at position i of the answer equal the text; ``token_s`` are the
    seconds of drafting one token.
    """

    right: list[int]
    token_s: float = 0.0


def greedy_sampler() -> Sampler:
    """The sampler of a request at temperature 0."""
    return Sampler(SamplingParams(), Noise(0), seeded=False)


def offers_along(proposer: Proposer, log: Log, request: int) -> Offers:
    """The drafts of a proposer of negligible cost at every position of a known answer."""
    context, sampler, right = list(log.prompt), greedy_sampler(), []
    for position, token in enumerate(log.output):
        (draft,) = proposer.propose([Ask(request, context, MOST, sampler, position)])
        right.append(shared_length(draft.tokens, log.output[position:]))
        if draft.tokens:
            proposer.observe(request, draft, right[-1])
        context.append(token)
    proposer.stop(request)
    return Offers(right)


def model_offers(draft: Backend, log: Log, token_s: float) -> Offers:
    """The greedy drafts of a draft model at every position, at most :data:`MOST` tokens.

    A draft is right exactly as long as the draft model's next token after the text is: so one pass over
    the text gives all of them.
    """
    text = [*log.prompt, *log.output]
    limits = draft.capabilities
    first, stop = len(log.prompt), min(len(text), limits.n_ctx)
    chosen: list[int] = []
    sequence = draft.open()
    try:
        for start in range(0, stop - 1, limits.max_batch):
            end = min(start + limits.max_batch, stop - 1)
            rows = min(end - start, max(0, end - (first - 1)))
            logits = draft.forward([Span(sequence, text[start:end], rows)])
            chosen += logits.argmax() if rows else ()
    finally:
        draft.close(sequence)
    return Offers(_runs(chosen, log.output), token_s)


def _runs(chosen: Sequence[int], text: Sequence[int]) -> list[int]:
    """The number of equal tokens of ``chosen`` and ``text`` from every position on, at most :data:`MOST`."""
    right = [0] * len(text)
    length = 0
    for position in range(min(len(chosen), len(text)) - 1, -1, -1):
        length = min(length + 1, MOST) if chosen[position] == text[position] else 0
        right[position] = length
    return right


def true_offers(tokens: int) -> Offers:
    """The drafts of the true-continuation oracle: the rest of the text."""
    return Offers([tokens - position for position in range(tokens)])


def least_seconds(tokens: int, offers: Iterable[Offers], cost: CostLine) -> float:
    """The least time in which rounds can emit an answer of ``tokens`` tokens.

    The first token comes from the prefill. A round at position i with k draft tokens of one proposer,
    all right, costs ``cost(k + 1) + k * token_s`` and emits k + 1.
    """
    offers = list(offers)
    costs = [cost(width) for width in range(1, MOST + 2)]
    least = [0.0] * (tokens + 1)
    for position in range(tokens - 1, 0, -1):
        best = costs[0] + least[position + 1]
        for right, token_s in offers:
            for k in range(1, min(right[position], MOST, tokens - position - 1) + 1):
                best = min(best, costs[k] + k * token_s + least[position + k + 1])
        least[position] = best
    return least[1] if tokens else 0.0


def plain_seconds(tokens: int, cost: CostLine) -> float:
    """The time of an answer of ``tokens`` tokens without speculation."""
    return max(tokens - 1, 0) * cost(1)
