"""The runner: every contestant answers the same requests, interleaved.

First every case is played once, plainly; that warms the machine up and fixes the prompts and the text
that the others are compared with: their turns follow the plain answers, so that all are asked the same.
Then, repeat by repeat and case by case, each contestant plays all turns of the case in an engine of its
own that knows nothing: no cached prefix, an empty memory, nothing learned from earlier repeats. Within
a case, caches and memory work as they would. Who begins moves on by one with every repeat.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from localspec.bench.log import Log
from localspec.bench.results import PLAIN, Contestant, Run
from localspec.bench.scratch import scratch_memory
from localspec.bench.stand import Answered, Stand, Tell, answer, as_contestant
from localspec.bench.workload import Case, request_of
from localspec.engine.events import RoundPlayed
from localspec.protocol.options import Options
from localspec.protocol.requests import Request


class Step(NamedTuple):
    """One turn as everybody is asked it, and what plain decoding says."""

    request: Request
    log: Log
    text_hash: str = ""


class Script(NamedTuple):
    """The turns of one case."""

    workload: str
    case: str
    steps: list[Step]


class Guest(Protocol):
    """Somebody else's decoding of the same model."""

    def play(self, steps: Sequence[Step]) -> Iterator[Run]:
        """Answer all turns of one case; the runs' repeat and contestant are filled in by the caller."""


class Clock:
    """Whether there is time for more; None: always."""

    def __init__(self, budget_s: float | None) -> None:
        self._end = None if budget_s is None else time.monotonic() + budget_s

    @property
    def is_up(self) -> bool:
        return self._end is not None and time.monotonic() > self._end


def record(stand: Stand, cases: Iterable[Case]) -> list[Script]:
    """Play every case plainly."""
    scripts = []
    for case in cases:
        steps: list[Step] = []
        said: str | None = None
        with stand.engine(Contestant(PLAIN)) as engine:
            for number, turn in enumerate(case.turns):
                request = request_of(turn, said)
                played = answer(engine, as_contestant(request, Contestant(PLAIN)))
                said = played.result.text
                log = Log(case.workload, case.name, number, played.prompt, played.output)
                steps.append(Step(request, log, text_hash(said)))
        scripts.append(Script(case.workload, case.name, steps))
    return scripts


class Plan(NamedTuple):
    """What is measured: who, on which scripts, how often."""

    scripts: Sequence[Script]
    contestants: Callable[[str, int], Sequence[Contestant]]
    """by workload and repeat; those of a repeat are asked for when it begins"""
    runs: int
    clock: Clock


def measure(stand: Stand, plan: Plan, guests: Mapping[str, Guest], tell: Tell) -> Iterator[Run]:
    """Every run as it is measured; ends early, between two cases, when the time is up, but not before
    every case was played once: half a table compares nothing.

    ``guests`` are the references among the contestants, by name.
    """
    blocks = plan.runs * len(plan.scripts)
    for repeat in range(plan.runs):
        for number, script in enumerate(plan.scripts):
            done = repeat * len(plan.scripts) + number
            if repeat and plan.clock.is_up:
                return
            contestants = plan.contestants(script.workload, repeat)
            first = repeat % len(contestants)
            for i, contestant in enumerate((*contestants[first:], *contestants[:first])):
                tell(f"{script.workload}: {contestant.name}", (done + i / len(contestants)) / blocks)
                guest = guests.get(contestant.name)
                played = guest.play(script.steps) if guest else play_script(stand, script, contestant)
                for run in played:
                    run.contestant, run.repeat = contestant.name, repeat
                    yield run


def play_script(
    stand: Stand, script: Script, contestant: Contestant, memory: Path | None = None
) -> Iterator[Run]:
    """All turns of one case, in an engine of its own; ``memory`` None: an empty one, thrown away."""
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
    """Whether everybody's text must be plain's."""
    return options.temperature == 0 or options.seed is not None


def text_hash(text: str) -> str:
    """Sixteen hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def survival(rounds: Iterable[RoundPlayed]) -> dict[str, list[list[int]]]:
    """By proposer and position in a draft: how often it was judged, and how often right.

    A position behind a wrong token is not judged.
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
