"""Two at once: a chat streams while completions arrive, in one engine."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from assets.bench.acceptance.results import TwoUp
from localspec.bench.measure import is_exact
from localspec.bench.results import Contestant
from localspec.bench.scratch import scratch_memory
from localspec.bench.stand import Answered, Stand, Tell, answer, as_contestant
from localspec.bench.workload import Case, request_of
from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence as Running
from localspec.protocol.requests import FimPrompt, Request

INTERVAL = 3.0
"""time between completions as a multiple of the median time of one alone"""


class Arrivals(NamedTuple):
    """The requests that are played together, and the seconds between completions."""

    chats: Sequence[Request]
    completions: Sequence[Request]
    interval_s: float


class Together(NamedTuple):
    """The measurements: seconds of each completion, the chat's tokens and decoding seconds, the answers."""

    completions: list[float]
    chat_tokens: int
    chat_s: float
    ended: list[tuple[Request, list[int]]]
    """every finished request, with its answer"""


def measure_two_up(stand: Stand, cases: Sequence[Case], contestant: Contestant, tell: Tell) -> TwoUp:
    """Measure both kinds alone, then together; every engine begins empty.

    Times are from submission to the last token for completions, from the first to the last token for
    chats, all chats together.
    """
    requests = [_unremembered(as_contestant(request_of(case.turns[0]), contestant)) for case in cases]
    completions = [request for request in requests if isinstance(request.prompt, FimPrompt)]
    chats = [request for request in requests if not isinstance(request.prompt, FimPrompt)]
    tell("two-up: alone", 0.0)
    with scratch_memory() as memory, stand.engine(contestant, memory) as engine:
        alone = [answer(engine, request) for request in completions]
    with scratch_memory() as memory, stand.engine(contestant, memory) as engine:
        streamed = [answer(engine, request) for request in chats]
    alone_s = statistics.median(played.total_s for played in alone)
    tell("two-up: together", 0.4)
    with scratch_memory() as memory, stand.engine(contestant, memory) as engine:
        together = play_together(engine, Arrivals(chats, completions, INTERVAL * alone_s))
    return TwoUp(
        contestant=contestant.name,
        completions=len(together.completions),
        completion_alone_s=alone_s,
        completion_s=statistics.median(together.completions),
        chat_alone_s_per_token=_s_per_token(streamed),
        chat_s_per_token=together.chat_s / max(together.chat_tokens, 1),
        share=1 / INTERVAL,
        diverged=_diverged(zip((*completions, *chats), (*alone, *streamed), strict=True), together),
        completion_alone_p95_s=_p95([played.total_s for played in alone]),
        completion_p95_s=_p95(together.completions),
    )


def _p95(seconds: Sequence[float]) -> float:
    """The 95th percentile."""
    return sorted(seconds)[max(0, math.ceil(0.95 * len(seconds)) - 1)]


def _diverged(alone: Iterable[tuple[Request, Answered]], together: Together) -> int:
    """The number of exact requests whose text beside others differed from that alone."""
    found = 0
    for request, played in alone:
        outputs = [output for ended, output in together.ended if ended == request]
        found += is_exact(request.options) and any(output != played.output for output in outputs)
    return found


def _unremembered(request: Request) -> Request:
    """The request without learning: chats are repeated during the completions, and memory would have them."""
    return msgspec.structs.replace(request, options=msgspec.structs.replace(request.options, remember=False))


def _s_per_token(played: Sequence[Answered]) -> float:
    speeds = [(p.result.completion_tokens - 1, p.result.stats.decode_tokens_per_s) for p in played]
    tokens = sum(n for n, _ in speeds)
    return sum(n / speed for n, speed in speeds if speed) / max(tokens, 1)


class _Streams:
    """An endless sequence of chats, one after the other."""

    def __init__(self, engine: Engine, chats: Sequence[Request]) -> None:
        self._engine, self._chats = engine, itertools.cycle(chats)
        self.tokens, self.seconds = 0, 0.0
        self.ended: list[tuple[Request, list[int]]] = []
        self._counted = 0
        self._next()

    def _next(self) -> None:
        self._request = next(self._chats)
        self.running = self._engine.submit(self._request)
        self._began: float | None = None

    def look(self, now: float) -> None:
        """After a step: count what was decoded since the first token; begin another chat at the end."""
        if self._began is not None:
            self.tokens += self.running.completion_tokens - self._counted
            self.seconds += now - self._began
        if self.running.prefilled:
            self._began, self._counted = now, self.running.completion_tokens
        if self.running.ended:
            self.ended.append((self._request, _answer_of(self.running)))
            self._next()


def _answer_of(sequence: Running) -> list[int]:
    return sequence.tokens[sequence.prompt_length :]


def play_together(engine: Engine, arrivals: Arrivals) -> Together:
    """Play chats without a pause until the last completion has ended."""
    chats = _Streams(engine, arrivals.chats)
    waiting: Iterator[Request] = iter(arrivals.completions)
    running: list[tuple[Running, Request, float]] = []
    taken: list[float] = []
    ended: list[tuple[Request, list[int]]] = []
    due = time.perf_counter() + arrivals.interval_s
    while len(taken) < len(arrivals.completions):
        if time.perf_counter() >= due and (request := next(waiting, None)) is not None:
            running.append((engine.submit(request), request, due))
            due += arrivals.interval_s
        engine.step()
        now = time.perf_counter()
        chats.look(now)
        for sequence, submitted, since in running:
            if sequence.ended:
                taken.append(now - since)
                ended.append((submitted, _answer_of(sequence)))
        running = [item for item in running if not item[0].ended]
    engine.cancel(chats.running.id)
    while engine.step():
        pass
    return Together(taken, chats.tokens, chats.seconds, [*chats.ended, *ended])
