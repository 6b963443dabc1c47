"""The runs of :mod:`assets.bench.beside`, and its tables of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from assets.bench.asking import Answer

PLAIN, AGAIN, AUTO, NONE = (
    "llama-server plain",
    "llama-server plain again",
    "localspec auto",
    "localspec none",
)


class Run(msgspec.Struct, frozen=True):
    """One answer of a contestant. Runs of one ``repeat``, ``case`` and ``turn`` were made in turn.

    ``fresh``: its server had not answered the same prompt for another contestant just before.
    """

    workload: str
    case: int
    turn: int
    repeat: int
    contestant: str
    fresh: bool
    answer: Answer

    @property
    def place(self) -> tuple[int, int, int]:
        return self.case, self.turn, self.repeat


class Figures(msgspec.Struct, frozen=True):
    """The figures of a contestant in a workload: medians, and ``worst``, the smallest ratio.

    Ratios are those to ``PLAIN``'s answer in the same turn. ``accepted`` is the share of drafted tokens,
    ``drafted`` that of the answers' tokens that a draft gave. ``equal`` of ``runs`` texts are the same as
    those of plain decoding by the same server. ``first_ms`` is that of fresh runs.
    """

    rate: float
    ratio: float
    worst: float
    accepted: float | None
    drafted: float
    first_ms: float | None
    equal: int
    runs: int


class Results:
    """All runs, with the answers that each is compared with."""

    def __init__(self, runs: Iterable[Run]) -> None:
        every = list(runs)
        self._by = {(run.contestant, run.place): run.answer for run in every}
        # A turn that was cut short before plain llama-server's answer has nothing to be compared with.
        self.runs = [run for run in every if self.rate(PLAIN, run) and run.answer.rate]
        self.workloads = list(dict.fromkeys(run.workload for run in self.runs))
        self.contestants = list(dict.fromkeys(run.contestant for run in every))

    def rate(self, contestant: str, beside: Run) -> float | None:
        """Tokens a second of a contestant's answer in the same turn."""
        answer = self._by.get((contestant, beside.place))
        return None if answer is None else answer.rate

    def of(self, workload: str, contestant: str) -> list[Run]:
        return [run for run in self.runs if (run.workload, run.contestant) == (workload, contestant)]

    def ratios(self, runs: Sequence[Run], other: str) -> list[float]:
        """The ratios of these runs to another contestant's in the same turn."""
        pairs = ((run.answer.rate, self.rate(other, run)) for run in runs)
        return [rate / beside for rate, beside in pairs if rate and beside]

    def figures(self, workload: str, contestant: str) -> Figures | None:
        """None for a contestant without a run in this workload."""
        runs = self.of(workload, contestant)
        if not runs:
            return None
        answers = [run.answer for run in runs]
        ratios = self.ratios(runs, PLAIN)
        drafted, accepted = sum(each.drafted for each in answers), sum(each.accepted for each in answers)
        fresh = [run.answer.first_ms for run in runs if run.fresh]
        plain = NONE if contestant.startswith("localspec") else PLAIN
        own = (self._by.get((plain, run.place)) for run in runs)
        return Figures(
            rate=statistics.median(answer.rate for answer in answers if answer.rate),
            ratio=statistics.median(ratios),
            worst=min(ratios),
            accepted=accepted / drafted if drafted else None,
            drafted=accepted / sum(answer.tokens for answer in answers),
            first_ms=statistics.median(fresh) if fresh else None,
            equal=sum(answer.text == other.text for answer, other in zip(answers, own, strict=True) if other),
            runs=len(answers),
        )


def table(results: Results) -> str:
    """Each workload's figures, by contestant."""
    heads = "   tok/s   ratio   worst  accepted  of text  first text   equal"
    lines = []
    for workload in results.workloads:
        lines += ["", f"{workload:34}{heads}"]
        for name in results.contestants:
            if (f := results.figures(workload, name)) is not None:
                accepted = "–" if f.accepted is None else f"{f.accepted:.0%}"
                first = "–" if f.first_ms is None else f"{f.first_ms:.0f} ms"
                row = f"{f.rate:8.1f}{f.ratio:7.2f}x{f.worst:7.2f}x{accepted:>10}{f.drafted:9.0%}"
                equal = f"{f.equal}/{f.runs}"
                lines.append(f"  {name:32}{row}{first:>12}{equal:>8}")
    return "\n".join(lines[1:])


def by_turn(results: Results) -> str:
    """Tokens a second by turn, of conversations of several turns."""
    lines = []
    for workload in results.workloads:
        turns = sorted({run.turn for run in results.runs if run.workload == workload})
        if len(turns) == 1:
            continue
        lines += ["", f"{workload + ', by turn':34}" + "".join(f"{turn + 1:8}" for turn in turns)]
        for name in results.contestants:
            rates = [
                [
                    run.answer.rate
                    for run in results.of(workload, name)
                    if run.turn == turn and run.answer.rate
                ]
                for turn in turns
            ]
            cells = "".join(f"{statistics.median(each):8.1f}" if each else f"{'–':>8}" for each in rates)
            lines.append(f"  {name:32}{cells}")
    return "\n".join(lines[1:])


def best_of(results: Results, workload: str) -> tuple[str, float] | None:
    """The setting of llama-server with the highest median, and that median."""
    names = [each for each in results.contestants if each.startswith("llama-server") and each != AGAIN]
    found = {name: figures.rate for name in names if (figures := results.figures(workload, name))}
    return max(found.items(), key=lambda item: item[1], default=None)


def verdict(results: Results) -> str:
    """``auto`` against the best of llama-server's settings, and against plain decoding by localspec."""
    lines = []
    for workload in results.workloads:
        ours, best = results.figures(workload, AUTO), best_of(results, workload)
        if ours is None or best is None:
            continue
        lost = min(results.ratios(results.of(workload, AUTO), NONE), default=None)
        sign = "≥" if ours.rate >= best[1] else "<"
        least = "" if lost is None else f"; least against own plain {lost:.2f}x"
        lines.append(f"  {workload:32}auto {ours.rate:5.1f} {sign} {best[1]:5.1f} {best[0]}{least}")
    return "\n".join(["auto beside the best of llama-server, tok/s", *lines]) if lines else ""


def markdown(results: Results) -> str:
    """Tokens a second, and in brackets the ratio to plain llama-server, as the documentation has them."""
    rows = [["tok/s (over llama-server's plain)", *results.workloads], ["---"] * (1 + len(results.workloads))]
    for name in results.contestants:
        figures = (results.figures(workload, name) for workload in results.workloads)
        rows.append([name, *(f"{f.rate:.1f} ({f.ratio:.2f})" if f else "–" for f in figures)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
