"""The runner: every contestant answers the same requests, interleaved.

First every case is played once, plainly; that warms the machine up and fixes the prompts and the text
that the others are compared with: their turns follow the plain answers, so that all get the same requests.
Then, repeat by repeat and case by case, each contestant plays all turns of the case in an engine of its
own that begins empty: no cached prefix, an empty n-gram memory, nothing learned from earlier repeats. Within
a case, caches and memory work as usual. The first contestant is the next one in every repeat. Workloads
take turns, case by case, so that each has had its share at any time when the budget ends.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from localspec.bench.contestant import attempt
from localspec.bench.log import Log
from localspec.bench.results import PLAIN, Contestant, Run
from localspec.bench.scratch import scratch_memory
from localspec.bench.stand import Answered, Stand, Tell, answer, as_contestant
from localspec.bench.workload import Case, request_of
from localspec.engine.events import RoundPlayed
from localspec.protocol.options import Options
from localspec.protocol.requests import Request


class Step(NamedTuple):
    """One turn: the request that all contestants get, and plain decoding's answer."""

    request: Request
    log: Log
    text_hash: str = ""


class Script(NamedTuple):
    """The turns of one case."""

    workload: str
    case: str
    steps: list[Step]


class Guest(Protocol):
    """Another project's decoding of the same model."""

    def play(self, steps: Sequence[Step]) -> Iterator[Run]:
        """Answer all turns of one case; the runs' repeat and contestant are filled in by the caller."""


class Clock:
    """A time budget in seconds; None: no limit."""

    def __init__(self, budget_s: float | None) -> None:
        self._budget_s, self._began = budget_s, time.monotonic()

    @property
    def is_up(self) -> bool:
        return self.spent >= 1

    @property
    def spent(self) -> float:
        """The share of the budget that is spent; more than 1 after its end."""
        if self._budget_s is None:
            return 0.0
        gone = time.monotonic() - self._began
        return gone / self._budget_s if self._budget_s else 1.0


class TimeLeft:
    """The estimated rest of a stage at its present rate; a fraction that does not grow begins another one."""

    def __init__(self) -> None:
        self._began, self._first, self._last = 0.0, 0.0, 1.0

    def __call__(self, fraction: float, now: float) -> float | None:
        """Seconds; None: not known yet. ``now`` is in seconds of any clock."""
        if fraction <= self._last:
            self._began, self._first = now, fraction
        self._last = fraction
        done = fraction - self._first
        return (now - self._began) * (1 - fraction) / done if done else None


class OfWorkload(Protocol):
    """A case, or another value with the workload of one."""

    @property
    def workload(self) -> str: ...


W = TypeVar("W", bound=OfWorkload)


def in_time(cases: Iterable[W], clock: Clock, *, at_least_one: bool = True) -> Iterator[W]:
    """As many cases as there is time for, the workloads in turns; with ``at_least_one`` the first of each
    workload even after the budget, as a table needs them for comparison.
    """
    by_workload: dict[str, list[W]] = {}
    for case in cases:
        by_workload.setdefault(case.workload, []).append(case)
    needed = len(by_workload) if at_least_one else 0
    in_turns = chain.from_iterable(zip_longest(*by_workload.values()))
    for number, each in enumerate(case for case in in_turns if case is not None):
        if number >= needed and clock.is_up:
            return
        yield each


def turn_teller(cases: Iterable[Case], tell: Tell) -> Callable[[Case], None]:
    """A callback for each turn of a case: reports its number in its workload, and the share of all turns."""
    turns: Counter[str] = Counter()
    for case in cases:
        turns[case.workload] += len(case.turns)
    begun: Counter[str] = Counter()

    def on_turn(case: Case) -> None:
        done = begun.total() / turns.total()
        begun[case.workload] += 1
        tell(f"recording {case.workload}: {begun[case.workload]} of {turns[case.workload]}", done)

    return on_turn


def record(
    stand: Stand, cases: Iterable[Case], on_turn: Callable[[Case], None] = lambda case: None
) -> list[Script]:
    """Play every case plainly; ``on_turn`` is called before each turn."""
    scripts = []
    for case in cases:
        steps: list[Step] = []
        previous: str | None = None
        with stand.engine(Contestant(PLAIN)) as engine:
            for number, turn in enumerate(case.turns):
                on_turn(case)
                request = request_of(turn, previous)
                played = answer(engine, as_contestant(request, Contestant(PLAIN)))
                previous = played.result.text
                log = Log(case.workload, case.name, number, played.prompt, played.output)
                steps.append(Step(request, log, text_hash(previous)))
        scripts.append(Script(case.workload, case.name, steps))
    return scripts


class Plan(NamedTuple):
    """A plan of measurements: contestants, scripts, and the number of repeats."""

    scripts: Sequence[Script]
    contestants: Callable[[str, int], Sequence[Contestant]]
    """the contestants by workload and repeat; called for a repeat when it begins"""
    runs: int
    clock: Clock
    failures: dict[str, str]
    """errors by contestant; one that fails is added, and is not measured any further"""

    def fraction(self, done: float) -> float:
        """Return the progress, 0 to 1, when all contestants have played ``done`` cases.

        It is the larger of two shares: of the planned cases that are played, and of the budget that is spent.
        The latter counts no more than the played share of the cases that are measured even after the budget:
        one of each workload.
        """
        needed = len({script.workload for script in self.scripts})
        return max(done / (self.runs * len(self.scripts)), min(done / needed, self.clock.spent, 1.0))


def measure(stand: Stand, plan: Plan, guests: Mapping[str, Guest], tell: Tell) -> Iterator[Run]:
    """Every run as it is measured; ends between two cases when the budget is spent: see :func:`in_time`.

    ``guests`` are the references among the contestants, by name.
    """
    for repeat in range(plan.runs):
        scripts = in_time(plan.scripts, plan.clock, at_least_one=repeat == 0)
        for done, script in enumerate(scripts, repeat * len(plan.scripts)):
            contestants = [
                c for c in plan.contestants(script.workload, repeat) if c.name not in plan.failures
            ]
            first = repeat % len(contestants)
            for i, contestant in enumerate((*contestants[first:], *contestants[:first])):
                tell(f"{script.workload}: {contestant.name}", plan.fraction(done + i / len(contestants)))
                guest = guests.get(contestant.name)
                played = guest.play(script.steps) if guest else play_script(stand, script, contestant)
                with attempt(contestant, plan.failures):
                    for run in played:
                        run.contestant, run.repeat = contestant.name, repeat
                        yield run


def play_script(
    stand: Stand, script: Script, contestant: Contestant, memory: Path | None = None
) -> Iterator[Run]:
    """All turns of one case, in an engine of its own; ``memory`` None: a temporary empty one."""
    if memory is None:
        with scratch_memory() as empty:
            yield from play_script(stand, script, contestant, empty)
        return
    with stand.engine(contestant, memory) as engine:
        for step in script.steps:
            yield run_of(step, answer(engine, as_contestant(step.request, contestant)))


def run_of(step: Step, played: Answered) -> Run:
    """The figures of one answer."""
    result, stats, log = played.result, played.result.stats, step.log
    speed = stats.decode_tokens_per_s
    return Run(
        workload=log.workload,
        case=log.case,
        turn=log.turn,
        contestant="",
        repeat=0,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        text_hash=text_hash(result.text),
        ttft_s=stats.ttft_s,
        decode_s=(result.completion_tokens - 1) / speed if speed else 0.0,
        total_s=played.total_s,
        cpu_s=played.cpu_s,
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        tokens_per_round=stats.tokens_per_round,
        time_saved_s=stats.time_saved_s,
        rechecks=stats.rechecks,
        propose_s=sum(share.seconds for share in stats.proposers.values()),
        round_s=played.watched.round_s,
        forward_s=played.watched.forward_s,
        exact=is_exact(step.request.options),
        survival=survival(played.watched.rounds),
        sources=_sources(played.watched.rounds),
    )


def is_exact(options: Options) -> bool:
    """Return True if all texts must equal that of plain decoding."""
    return options.temperature == 0 or options.seed is not None


def text_hash(text: str) -> str:
    """Sixteen hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def survival(rounds: Iterable[RoundPlayed]) -> dict[str, list[list[int]]]:
    """Counts by proposer and position in a draft: how often it was verified, and how often accepted.

    A position behind a rejected token is not verified.
    """
    found: dict[str, list[list[int]]] = {}
    for played in rounds:
        counts = found.setdefault(played.proposer, [])
        for position in range(min(len(played.proposed), played.accepted + 1)):
            if position == len(counts):
                counts.append([0, 0])
            counts[position][0] += 1
            counts[position][1] += position < played.accepted
    return {proposer: counts for proposer, counts in found.items() if counts}


def _sources(rounds: Iterable[RoundPlayed]) -> dict[str, int]:
    """Accepted tokens by proposer."""
    counts: dict[str, int] = {}
    for played in rounds:
        if played.accepted:
            counts[played.proposer] = counts.get(played.proposer, 0) + played.accepted
    return counts
