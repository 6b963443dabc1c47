"""Speculation without a model: recorded answers through a proposer, on a given cost curve.

The drafts of a proposer and their accepted tokens depend on the text alone, so counts are exact and the
same on every machine; times are those of the cost curve.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from localspec.backends.llama_cpp.native import SETTLING
from localspec.engine.learning import Learning
from localspec.engine.round import LONGEST_K, EngineParts, make
from localspec.memory.memory import Memory, forget
from localspec.memory.ngrams import MemoryText
from localspec.protocol.options import AUTO, KINDS
from localspec.protocol.requests import EngineConfig
from localspec.speculation.controller import BUCKETS, Calibration, Controller
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.noise import Noise
from localspec.speculation.proposer import (
    Ask,
    Draft,
    PlainDecoding,
    Proposer,
    Savings,
    nothing,
    shared_length,
)
from localspec.speculation.sampling import Sampler, SamplingParams
from tests.toy import ToyBackend

HINDSIGHT = "hindsight"
DRAFT = DraftModel.name
"""the best choice and length in each round, by the answer itself"""
KNOWN = 8
"""observations of a width after which its cost counts as measured"""

GREEDY = Sampler(SamplingParams(), Noise(0), seeded=False)
WRONG = -1
"""a token that no answer has"""

Token = Annotated[int, Meta(ge=0, lt=2**31)]
Certainty = Annotated[int, Meta(ge=0, lt=BUCKETS)]


class Log(msgspec.Struct, frozen=True):
    """One plain answer as token ids: ``output`` follows ``prompt``, without an end token.

    ``draft[i]`` is the token that a draft model would have put in the place of ``output[i]``, after reading
    all before it, and ``certainty[i]`` its evidence; both empty: no draft model was recorded.
    """

    workload: str
    case: str
    turn: int
    prompt: list[Token]
    output: list[Token]
    draft: list[Token] = []
    certainty: list[Certainty] = []

    def __post_init__(self) -> None:
        if len(self.draft) != len(self.certainty):
            raise ValueError(f"draft has {len(self.draft)} values, certainty {len(self.certainty)}")


def read_logs(path: Path) -> list[Log]:
    """Read a file of logs, one JSON line an answer."""
    return [msgspec.json.decode(line, type=Log) for line in path.read_bytes().splitlines()]


class CostLine:
    """Seconds of a forward of any width: straight lines between the known widths and beyond them, where
    it does not fall."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._widths = sorted(seconds)
        self._seconds = [seconds[width] for width in self._widths]

    def __call__(self, width: int) -> float:
        """Seconds of a forward over ``width`` ≥ 1 tokens."""
        widths, seconds = self._widths, self._seconds
        beyond = width - widths[-1]
        if beyond > 0 and len(widths) > 1:
            return seconds[-1] + max(0.0, beyond * (seconds[-1] - seconds[-2]) / (widths[-1] - widths[-2]))
        return float(np.interp([width], widths, seconds)[0])


EXAMPLE = CostLine({1: 0.0120, 2: 0.0274, 4: 0.0320, 5: 0.0416, 8: 0.0439, 16: 0.0720})
"""two cores of x86, a model of half a billion parameters at Q8_0"""


class Play(msgspec.Struct, frozen=True):
    """The results of a proposer; sums over requests. ``seconds`` and ``plain_s`` are by the cost curve."""

    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    plain_s: float = 0.0

    def __add__(self, other: Play) -> Play:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Play(*(a + b for a, b in pairs))

    @property
    def speed(self) -> float | None:
        """Speed as a multiple of plain decoding."""
        return self.plain_s / self.seconds if self.seconds else None


class Time:
    """The simulated time in seconds."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class RecordedDraft(Proposer):
    """The draft model of recorded answers; each of its forwards takes ``share`` of the target's time."""

    name, costly, prior = DraftModel.name, True, DraftModel.prior

    def __init__(self, cost: CostLine, share: float, time: Time) -> None:
        self._cost, self._share, self._time = cost, share, time
        self.log: Log | None = None
        self._read = 0
        """tokens of prompt and answer in the draft model's cache"""

    def begin(self, log: Log) -> None:
        """Draft for this answer from now on; its prompt was read before."""
        self.log, self._read = log, len(log.prompt)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        (ask,) = asks
        assert self.log is not None
        start = len(ask.context) - len(self.log.prompt)
        room = min(ask.k, len(self.log.draft) - start)
        if room < 1:
            return [nothing("no draft was recorded here")]
        width = len(ask.context) - self._read
        self._read = len(ask.context)
        count, fed = 0, 0
        while count < room and (not count or ask.gate is None or ask.gate.goes_on()):
            self._time.s += self._share * self._cost(max(width, 1))
            width, fed = 1, count
            if ask.gate is not None and not ask.gate.admits(self.log.certainty[start + count]):
                break
            count += 1
        tokens, evidence = self.log.draft[start : start + count], self.log.certainty[start : start + count]
        right = shared_length(tokens, self.log.output[start:])
        self._read += min(right, fed)
        # Tokens behind the first wrong one were not recorded: they count as wrong.
        tokens[right + 1 :] = [WRONG] * (count - right - 1)
        return [Draft(tuple(tokens), self.name, evidence=tuple(evidence))]

    def price(self, ask: Ask, k: int) -> float:
        return self._share * k * self._cost(1) + self.catch_up(ask)

    def catch_up(self, ask: Ask) -> float:
        behind = max(len(ask.context) - self._read, 1)
        return self._share * (self._cost(behind) - self._cost(1))


class Device:
    """A device with these costs of a forward; the first ones of a width have those of ``first``. ``costs``
    learns from each forward, as in the engine."""

    def __init__(self, cost: CostLine, first: CostLine | None = None) -> None:
        self.cost, self._first = cost, first
        self.costs = CostCurve(settling=SETTLING if first else 0)
        self._width = self._run = 0
        for width in sorted(KNOWN * [*range(1, LONGEST_K + 2)]):
            self.forward(width)

    def forward(self, width: int) -> float:
        """Return the seconds of the next forward."""
        self._run = self._run + 1 if width == self._width else 1
        self._width = width
        seconds = (self._first if self._first and self._run <= SETTLING else self.cost)(width)
        self.costs.observe(width, 0, seconds)
        return seconds


def play(log: Log, proposer: Proposer, request: int, *, k: int, device: Device, time: Time) -> Play:
    """Decode one answer again, ``k`` draft tokens a round at most."""
    cost, _ = device.cost, [device.forward(1) for _ in range(SETTLING)]  # as behind plain decoding
    context, output = [*log.prompt, *log.output[:1]], log.output
    position, rounds, drafted, right, spent, began = 1, 0, 0, 0, 0.0, time.s
    while position < len(output):
        room = min(k, len(output) - position - 1)
        savings = Savings((position - 1) * cost(1) - spent, spent)
        (offer,) = proposer.propose([Ask(request, context, room, GREEDY, position, savings=savings)])
        draft = offer.cut(room)
        accepted = shared_length(draft.tokens, output[position:])
        context += output[position : position + accepted + 1]
        if draft.tokens:
            proposer.observe(request, draft, accepted)
        position += accepted + 1
        rounds, drafted, right = rounds + 1, drafted + len(draft.tokens), right + accepted
        took = device.forward(len(draft.tokens) + 1 + draft.padding)
        spent, time.s = spent + took, time.s + took
    proposer.stop(request)
    return result_of(log, rounds, drafted, right, time.s - began, cost)


def result_of(log: Log, rounds: int, drafted: int, accepted: int, seconds: float, cost: CostLine) -> Play:
    """The results of one answer, with the time of plain decoding."""
    n = len(log.output)
    return Play(n, rounds, drafted, accepted, seconds, max(n - 1, 0) * cost(1))


def members_of(name: str, memory: Memory) -> list[Proposer]:
    """New proposers that cost no time: the one of this name, or all of them for one that chooses."""
    target = ToyBackend()
    parts = EngineParts(target, None, EngineConfig(), Learning(target, memory=memory))
    wanted = [kind for kind in KINDS if name in (AUTO, HINDSIGHT, kind.name)]
    return [made for kind in wanted if (made := make(kind, parts)) is not None]


def hindsight(log: Log, request: int, members: Sequence[Proposer], *, k: int, cost: CostLine) -> Play:
    """The least time that any choice of a member and a length in each round could take: no draft is verified
    further than it is right. A draft model of the log is not among the members."""
    output = log.output
    context, longest = [*log.prompt, *output[:1]], [0] * len(output)
    for at in range(1, len(output)):
        room = min(k, len(output) - at - 1)
        for member in members:
            (offer,) = member.propose([Ask(request, context, room, GREEDY, at)])
            longest[at] = max(longest[at], shared_length(offer.tokens[:room], output[at:]))
        context.append(output[at])
    for member in members:
        member.stop(request)
    # By position: seconds, rounds and drafted tokens of the rest of the answer.
    rest = [(0.0, 0, 0)] * (len(output) + 1)
    for at in range(len(output) - 1, 0, -1):
        rest[at] = min(
            (cost(n + 1) + rest[at + n + 1][0], 1 + rest[at + n + 1][1], n + rest[at + n + 1][2])
            for n in range(longest[at] + 1)
        )
    seconds, rounds, drafted = rest[min(1, len(output))]
    return result_of(log, rounds, drafted, drafted, seconds, cost)


def simulate(
    logs: Sequence[Log],
    name: str,
    *,
    k: int,
    cost: CostLine,
    draft_share: float | None = None,
    first: CostLine | None = None,
) -> list[Play]:
    """Play all answers in their order with one proposer. The n-gram memory begins empty for each sampler's,
    and learns each answer at its end, as in the engine. ``draft_share``: the time of a draft model's forward
    as a share of the target's; None: there is no draft model. ``first``: the costs of the first forwards of a
    width; None: those of the others.
    """
    plays, time, device = [], Time(), Device(cost, first)
    drafter = None if draft_share is None else RecordedDraft(cost, draft_share, time)
    # There are only token ids; without their bytes secrets cannot be recognised.
    with (
        tempfile.TemporaryDirectory(prefix="localspec-bench-") as directory,
        closing(Memory(Path(directory), "benchmark", lambda token: b" ")) as memory,
    ):
        members = members_of(name, memory)
        if drafter is not None and name in (AUTO, DRAFT):
            members.append(drafter)
        # ``auto`` takes the time of the curve alone: else counts would depend on the load of this machine.
        auto = Controller(members, device.costs, Calibration(), clock=time)
        proposer = auto if name == AUTO else [*members, PlainDecoding()][0]
        for request, log in enumerate(logs):
            if request and log.case.split()[1:] != logs[request - 1].case.split()[1:]:
                forget(Path(directory), print)  # these are the same prompts, answered by another sampler
            if drafter is not None:
                drafter.begin(log)
            if name == HINDSIGHT:
                plays.append(hindsight(log, request, members, k=k, cost=cost))
            else:
                plays.append(play(log, proposer, request, k=k, device=device, time=time))
            memory.learn(MemoryText([*log.prompt, *log.output], None, "bench"))
            while memory.work():
                pass
    return plays
