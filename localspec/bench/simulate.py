"""Speculation without a model: token logs through a proposer, on a given cost curve.

The drafts of a proposer and their accepted tokens depend on the text alone, so counts are exact and the
same on every machine; times are those of the cost curve.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from localspec.bench.curve import CostLine
from localspec.bench.log import Log
from localspec.bench.oracle import greedy_sampler, least_seconds, offers_along, plain_seconds
from localspec.bench.results import ProposeCost
from localspec.speculation.draft import Ask, Savings, shared_length
from localspec.speculation.proposer import Proposer

CONTEXTS = (1_000, 8_000, 32_000)
ROUNDS, BATCH = 400, 20
EARLIER, TIMED = -2, -1


class Play(msgspec.Struct, frozen=True):
    """The results of a proposer; sums over requests.

    ``seconds`` and ``plain_s`` are by the cost curve, ``spent_s`` is the measured time of proposing and
    observing.
    """

    requests: int = 0
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    plain_s: float = 0.0
    spent_s: float = 0.0

    def __add__(self, other: Play) -> Play:
        return Play(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_round(self) -> float | None:
        return (self.tokens - self.requests) / self.rounds if self.rounds else None

    @property
    def speed(self) -> float | None:
        """Speed as a multiple of plain decoding."""
        return self.plain_s / self.seconds if self.seconds else None

    @property
    def microseconds(self) -> float | None:
        """Microseconds per propose and observe."""
        return self.spent_s / self.rounds * 1e6 if self.rounds else None


def _values(play: Play) -> tuple[int, ...]:
    return msgspec.structs.astuple(play)


def play(log: Log, proposer: Proposer, request: int, *, k: int, cost: CostLine) -> Play:
    """Decode one answer again, ``k`` draft tokens a round at most."""
    context, sampler, output = [*log.prompt, *log.output[:1]], greedy_sampler(), log.output
    position, rounds, drafted, right, seconds, spent = 1, 0, 0, 0, 0.0, 0.0
    while position < len(output):
        started = time.perf_counter()
        room = min(k, len(output) - position - 1)
        savings = Savings((position - 1) * cost(1) - seconds, seconds)
        (offer,) = proposer.propose([Ask(request, context, room, sampler, position, savings=savings)])
        spent += time.perf_counter() - started
        draft = offer.cut(room)
        accepted = shared_length(draft.tokens, output[position:])
        context += output[position : position + accepted + 1]
        started = time.perf_counter()
        if draft.tokens:
            proposer.observe(request, draft, accepted)
        spent += time.perf_counter() - started
        position += accepted + 1
        rounds, drafted, right = rounds + 1, drafted + len(draft.tokens), right + accepted
        seconds += cost(len(draft.tokens) + 1)
    proposer.stop(request)
    plain = plain_seconds(len(output), cost)
    return Play(int(bool(output)), len(output), rounds, drafted, right, seconds, plain, spent)


def simulate(logs: Sequence[Log], proposer: Proposer, *, k: int, cost: CostLine) -> dict[str, Play]:
    """Play all requests in their order with one proposer; results by workload."""
    plays: dict[str, Play] = {}
    for request, log in enumerate(logs):
        plays[log.workload] = plays.get(log.workload, Play()) + play(log, proposer, request, k=k, cost=cost)
    return plays


def router_seconds(logs: Sequence[Log], proposers: Sequence[Proposer], cost: CostLine) -> dict[str, float]:
    """Seconds of the router oracle over ``proposers`` by workload. See :mod:`localspec.bench.oracle`."""
    least: dict[str, float] = {}
    for request, log in enumerate(logs):
        offers = [offers_along(proposer, log, request) for proposer in proposers]
        seconds = least_seconds(len(log.output), offers, cost)
        least[log.workload] = least.get(log.workload, 0.0) + seconds
    return least


def code_like(tokens: int, *, seed: int = 0) -> list[int]:
    """Token ids that repeat as source code does: lines from a pool, some lines much more often."""
    chance = random.Random(seed)
    lines = [[chance.randrange(30_000) for _ in range(chance.randint(3, 14))] for _ in range(400)]
    text: list[int] = []
    while len(text) < tokens:
        line = list(lines[int(len(lines) * chance.random() ** 3)])
        if chance.random() < 0.3:
            line[chance.randrange(len(line))] = chance.randrange(30_000)
        text += line
    return text[:tokens]


def propose_costs(
    makers: Iterable[tuple[str, Callable[[], Proposer]]], contexts: Sequence[int] = CONTEXTS
) -> list[ProposeCost]:
    """Microseconds per propose and observe behind each length of context; see :func:`round_seconds`."""
    return [
        ProposeCost(name, context, 1e6 * round_seconds(make(), context))
        for name, make in makers
        for context in contexts
    ]


def round_seconds(proposer: Proposer, context_length: int, *, k: int = 4) -> float:
    """Median seconds of a round over batches; the first round, which reads the prompt, does not count.

    An earlier request had the same text, so that a memory has much to recall.
    """
    text = code_like(context_length + ROUNDS * (k + 1) + 1, seed=context_length)
    sampler = greedy_sampler()
    proposer.propose([Ask(EARLIER, text, k, sampler)])
    proposer.stop(EARLIER)
    context, position = text[:context_length], context_length
    (draft,) = proposer.propose([Ask(TIMED, context, k, sampler)])
    batches = []
    for _ in range(ROUNDS // BATCH):
        started = time.perf_counter()
        for _ in range(BATCH):
            accepted = shared_length(draft.tokens, text[position : position + k])
            context += text[position : position + accepted + 1]
            position += accepted + 1
            if draft.tokens:
                proposer.observe(TIMED, draft, accepted)
            (draft,) = proposer.propose([Ask(TIMED, context, k, sampler)])
        batches.append((time.perf_counter() - started) / BATCH)
    proposer.stop(TIMED)
    return statistics.median(batches)
