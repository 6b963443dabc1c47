"""The results of a benchmark: runs, figures of each workload, and a plot of them.

Ratios compare answers of one run, which were given in turn; speeds of different documents are not comparable.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from xml.sax.saxutils import escape

import msgspec

WIDTH, LEFT, ROW, TOP = 720, 130, 34, 64
"""pixels: of the plot, of its names, of a row, and above the first row"""
STYLE = "text{font:13px sans-serif;fill:#333}.title{font-weight:bold}.bar{fill:#4c78a8}.slower{fill:#c44}"
"""colours and type of the plot"""


class Run(msgspec.Struct, frozen=True):
    """A case answered four times: tokens per second, and counts of the proposer's two answers.

    ``decoded`` are their tokens but the first ones, which the prompt's forward gives. ``equal``: all four
    texts are the same.
    """

    workload: str
    case: int
    plain: tuple[float, float]
    speculative: tuple[float, float]
    decoded: int
    rounds: int
    drafted: int
    accepted: int
    equal: bool

    @property
    def ratio(self) -> float:
        return sum(self.speculative) / sum(self.plain)


class Figure(msgspec.Struct, frozen=True):
    """The figures of a workload over its runs: medians, and the slowest ``ratio``."""

    workload: str
    plain: float
    speculative: float
    ratio: float
    worst: float
    acceptance: float | None
    tokens_per_round: float
    equal: bool


class Results(msgspec.Struct, kw_only=True):
    """The document of ``--json``. ``left_out``: workloads without a run that has a speed.

    ``noise`` is the largest difference of two plain answers of one run, as a share. ``stopped``: Ctrl-C ended
    the measurement early.
    """

    model: str
    draft: str | None
    backend: str
    proposer: str
    machine: str
    stopped: bool = False
    noise: float | None = None
    left_out: list[str] = []
    figures: list[Figure] = []
    runs: list[Run] = []

    def conclude(self) -> None:
        """Compute what follows from the runs."""
        self.figures = figures_of(self.runs)
        self.noise = max((max(run.plain) / min(run.plain) - 1 for run in self.runs), default=None)


def figures_of(runs: Sequence[Run]) -> list[Figure]:
    """A figure for each workload."""
    found = []
    for workload in dict.fromkeys(run.workload for run in runs):
        mine = [run for run in runs if run.workload == workload]
        drafted, rounds = sum(run.drafted for run in mine), sum(run.rounds for run in mine)
        found.append(
            Figure(
                workload=workload,
                plain=statistics.median(statistics.mean(run.plain) for run in mine),
                speculative=statistics.median(statistics.mean(run.speculative) for run in mine),
                ratio=statistics.median(run.ratio for run in mine),
                worst=min(run.ratio for run in mine),
                acceptance=sum(run.accepted for run in mine) / drafted if drafted else None,
                tokens_per_round=sum(run.decoded for run in mine) / rounds,
                equal=all(run.equal for run in mine),
            )
        )
    return found


def svg_of(results: Results) -> str:
    """A bar for each workload's ratio to plain decoding, with a mark at its worst run."""
    longest = max([1.25, *(figure.ratio for figure in results.figures)])
    scale = (WIDTH - LEFT - 70) / longest
    height = TOP + ROW * len(results.figures) + 30
    title = f"{results.model}: {results.proposer} against plain decoding"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="10" y="22">{escape(title)}</text>',
        f'<text x="10" y="42">{escape(results.machine)}; the mark is the worst run</text>',
    ]
    for number, figure in enumerate(results.figures):
        y, length, worst = TOP + ROW * number, figure.ratio * scale, LEFT + figure.worst * scale
        kind = "bar" if figure.ratio >= 1 else "slower"
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end">{escape(figure.workload)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="20"/>',
            f'<path d="M{worst:.1f} {y}v28" stroke="#333" stroke-width="2"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 18}">{figure.ratio:.2f}x</text>',
        ]
    plain, end = LEFT + scale, height - 24
    parts += [
        f'<path d="M{plain:.1f} {TOP - 6}V{end}" stroke="#333" stroke-dasharray="4 3"/>',
        f'<text x="{plain:.1f}" y="{height - 8}" text-anchor="middle">plain</text>',
        "</svg>\n",
    ]
    return "\n".join(parts)
