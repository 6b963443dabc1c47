"""``localspec bench``: what speculation gains on this machine, and a simulator for tuning it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from localspec.cli import output
from localspec.config import load_config
from localspec.errors import ExitCode, InvalidOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from localspec.bench.bench import Bench
    from localspec.bench.results import Figure, Results
    from localspec.bench.simulate import Play

FIXED_K = 4
WIDE = 120
NEARLY = 0.999
"""a bar that has once been full stops its clock"""

app = App(name="bench", help="Measure this machine: plain decoding against every proposer.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """What to measure, and what becomes of it."""

    quick: bool = False
    "A rough table in a minute and a half."
    json: bool = False
    "Print one JSON object: everything, raw runs included."
    report: Path | None = None
    "Write a page with plots."
    from_: Annotated[tuple[Path, ...], Parameter(name="--from")] = ()
    "Measure nothing: take the results from this file of --json; may be repeated, they are put together."
    record: Path | None = None
    "Measure nothing: write the plain answers as token logs for `bench simulate`."
    workload: tuple[str, ...] = ()
    "Only this workload; may be repeated."
    contestant: tuple[str, ...] = ()
    "Only this contestant, beside plain decoding; may be repeated."
    runs: PositiveInt = 5
    "How often everything is measured."
    cases: PositiveInt | None = None
    "Only so many cases of each workload."
    llama_server: Path | None = None
    "llama.cpp's server, to compare with; otherwise the one on PATH."
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None
    "Model to measure; otherwise the bundled pair, inflated to the cost of 0.5 billion parameters."
    draft: str = "auto"
    "Its draft model: a name, a path, `none` or `auto`."


NO_FLAGS = BenchFlags()


@app.default
def bench(*, flags: BenchFlags = NO_FLAGS) -> int:
    """Measure, and print a table; returns the exit code."""
    from localspec.bench.merge import merged
    from localspec.bench.report import report_of
    from localspec.bench.results import read_results, write_whole

    _check(flags)
    if flags.record is not None:
        return _record(flags, flags.record)
    results = merged([read_results(path) for path in flags.from_]) if flags.from_ else _measure(flags)
    if flags.report is not None:
        write_whole(flags.report, report_of(results))
    if flags.json:
        output.json(results)
    else:
        _show(_tables(results))
    if results.stopped and not flags.from_:
        output.note(f"localspec: stopped after {len(results.runs)} runs; this is what they showed.")
        raise KeyboardInterrupt
    return ExitCode.OK


@app.command
def simulate(
    log: Path,
    *,
    proposer: str = "prompt-lookup",
    k: Annotated[int | None, Parameter(name="-k")] = None,
    cost: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Play token logs through a proposer, without a model: exact counts, times of a given cost curve.

    Parameters
    ----------
    log
        File that `localspec bench --record` wrote.
    proposer
        Who drafts: prompt-lookup, memory, auto (which chooses between the two) or none.
    k
        Most draft tokens a round, 1 to 20; otherwise 4, or 20 for auto, which chooses itself.
    cost
        Milliseconds of a forward by its width, such as 1=12,2=27,5=42.
    as_json
        Print one JSON object.
    """
    from localspec.bench.cheap import cheap_makers, make_proposer
    from localspec.bench.curve import EXAMPLE, parse_costs
    from localspec.bench.log import read_logs
    from localspec.bench.oracle import MOST
    from localspec.bench.simulate import router_seconds
    from localspec.bench.simulate import simulate as run

    if k is None:
        k = MOST if proposer == "auto" else FIXED_K
    if not 1 <= k <= MOST:
        raise InvalidOptions(f"-k {k} is not within 1 to {MOST}", f"Choose a number from 1 to {MOST}.")
    line = EXAMPLE if cost is None else parse_costs(cost)
    logs = read_logs(log)
    with cheap_makers() as makers:
        plays = run(logs, make_proposer(proposer, makers, line), k=k, cost=line)
        least = router_seconds(logs, [make() for make in makers.values()], line)
    if as_json:
        output.json({"workloads": {w: _play_facts(play, least[w]) for w, play in plays.items()}})
    else:
        _show([_play_table(plays, least)])
    return ExitCode.OK


def _check(flags: BenchFlags) -> None:
    whats = (flags.record, flags.quick, flags.workload, flags.contestant, flags.cases)
    if flags.from_ and any(whats):
        raise InvalidOptions("--from measures nothing", "Drop what says what to measure, or --from.")
    if flags.record is not None and (flags.report or flags.json):
        raise InvalidOptions("--record measures nothing", "Drop --report and --json, or --record.")
    for path in (flags.report, flags.record):
        if path is not None and not path.expanduser().absolute().parent.is_dir():
            raise InvalidOptions(f"there is no directory {path.parent}", "Name a file in one that exists.")


def _measure(flags: BenchFlags) -> Results:
    with _Progress() as progress:
        bench = _bench(flags, progress)
        try:
            return bench.run()
        except KeyboardInterrupt:
            if bench.results.has_something:
                return bench.results
            progress.stop()
            output.note("localspec: stopped before anything was measured; nothing was written.")
            raise


def _record(flags: BenchFlags, path: Path) -> int:
    from localspec.bench.log import write_logs

    with _Progress() as progress:
        logs = _bench(flags, progress).record()
    write_logs(path, logs)
    output.note(f"{len(logs)} answers recorded in {path}")
    return ExitCode.OK


def _bench(flags: BenchFlags, progress: _Progress) -> Bench:
    from localspec.bench.bench import Bench, Order
    from localspec.engine.load import choose

    config = load_config()
    choice = None if flags.model is None else choose(flags.model, flags.draft, config.model_dirs)
    order = Order(
        target=choice and choice.target,
        draft=choice and choice.draft,
        backend=config.options.backend or "auto",
        config=config.engine,
        workloads=flags.workload,
        contestants=flags.contestant,
        runs=flags.runs,
        cases=flags.cases,
        quick=flags.quick,
        llama_server=flags.llama_server,
    )
    return Bench(order, progress.update)


class _Progress:
    """What is being measured, on a line of stderr; nothing where that is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("starting", total=1.0)
        self._interrupted = False

    def __enter__(self) -> _Progress:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        self.stop()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        raise KeyboardInterrupt

    def update(self, what: str, fraction: float) -> None:
        if self._interrupted:
            # The first exception was raised where Python drops it: in a destructor.
            raise KeyboardInterrupt
        self._bar.update(self._task, description=what, completed=min(fraction, NEARLY))

    def stop(self) -> None:
        self._bar.stop()


def _show(tables: Sequence[RenderableType]) -> None:
    from rich.console import Console

    # Into a file or a pipe go whole lines, however narrow the terminal that nobody reads them on.
    console = Console(highlight=False, width=None if output.is_terminal() else WIDE)
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    output.write(captured.get())


def _tables(results: Results) -> list[RenderableType]:
    return [_figure_table(results), _goal_lines(results)]


def _figure_table(results: Results) -> RenderableType:
    from rich import box
    from rich.table import Table

    machine, setting = results.machine, results.setting
    repeats = 1 + max((run.repeat for run in results.runs), default=0)
    title = f"{machine.cpu}, {machine.cores} cores; {results.models[0].name}"
    note = "Speed is tok/s over plain decoding in this run; " + (
        "one run each: a rough picture." if repeats == 1 else f"medians of up to {repeats} runs."
    )
    table = Table(title=title, caption=note, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.padding = (0, 1, 0, 0)
    table.add_column("workload", no_wrap=True, min_width=10)
    table.add_column("contestant", no_wrap=True, overflow="ellipsis")
    for header in ("speed", "worst", "accepted", "tok/round", "router", "saved"):
        table.add_column(header, justify="right", no_wrap=True, min_width=len(header))
    for workload in setting.workloads:
        mine = [figure for figure in results.figures if figure.workload == workload]
        for number, figure in enumerate(mine):
            table.add_row("" if number else workload, *_cells(figure), end_section=number == len(mine) - 1)
    return table


def _cells(figure: Figure) -> tuple[str, ...]:
    from localspec.bench.results import CONTROL, PLAIN

    speculates = figure.contestant not in (PLAIN, CONTROL)
    return (
        figure.contestant,
        f"{figure.speed:.2f}x",
        _or_dash("{:.2f}x", figure.low),
        _or_dash("{:.0%}", figure.acceptance),
        _or_dash("{:.2f}", figure.tokens_per_round),
        _or_dash("{:.0%}", figure.router_share if speculates else None),
        _or_dash("{:.1f} s", figure.time_saved_s if speculates else None),
    )


def _or_dash(form: str, value: float | None) -> str:
    return "-" if value is None else form.format(value)


def _goal_lines(results: Results) -> RenderableType:
    from rich.text import Text

    from localspec.bench.figures import warning_of
    from localspec.bench.goals import NOT_MEASURED

    marks = {True: ("✓ ", "green"), False: ("✗ ", "red"), None: ("· ", "")}
    lines = Text()
    if warning := warning_of(results):
        lines.append(f"{warning}\n", "yellow")
    for goal in results.goals:
        if goal.note != NOT_MEASURED:
            # Of a busy machine nothing is claimed, be it good or bad.
            lines.append(*(("? ", "") if warning else marks[goal.met]))
            lines.append(f"{goal.name}: {goal.figure}, wanted {goal.goal}")
            lines.append(f"; {goal.note}\n" if goal.note else "\n")
    missing = [goal.name for goal in results.goals if goal.note == NOT_MEASURED]
    if missing:
        lines.append(f"{NOT_MEASURED}: {'; '.join(missing)}\n")
    return lines


def _play_facts(play: Play, router_s: float) -> dict[str, float | None]:
    return {
        "requests": play.requests,
        "tokens": play.tokens,
        "rounds": play.rounds,
        "drafted": play.drafted,
        "accepted": play.accepted,
        "acceptance_rate": play.acceptance,
        "tokens_per_round": play.tokens_per_round,
        "speed": play.speed,
        "router_share": router_s / play.seconds if play.seconds else None,
        "microseconds": play.microseconds,
    }


def _play_table(plays: dict[str, Play], least: dict[str, float]) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("workload")
    for header in ("tokens", "rounds", "accepted", "tokens/round", "speed", "of router", "µs/round"):
        table.add_column(header, justify="right")
    for workload, play in plays.items():
        table.add_row(
            workload,
            str(play.tokens),
            str(play.rounds),
            f"{play.accepted}/{play.drafted}",
            _or_dash("{:.2f}", play.tokens_per_round),
            _or_dash("{:.2f}x", play.speed),
            _or_dash("{:.0%}", least[workload] / play.seconds if play.seconds else None),
            _or_dash("{:.0f}", play.microseconds),
        )
    return table
