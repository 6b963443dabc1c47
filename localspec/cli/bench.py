"""``localspec bench``: what speculation gains on this machine, and a simulator for tuning it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from localspec.cli import output
from localspec.cli.completers import drafts
from localspec.cli.examples import epilogue
from localspec.cli.flags import ModelName
from localspec.config import environment_options, load_config
from localspec.errors import ExitCode, InvalidOptions, LocalspecError
from localspec.protocol.options import Options
from localspec.wording import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from localspec.bench.bench import Bench, Order
    from localspec.bench.results import Figure, Results
    from localspec.bench.simulate import Play

FIXED_K = 4
WIDE = 120
MINUTES_FROM_S = 90
LINE_S = 15.0
"""seconds between two lines of progress where there is no terminal"""
NEARLY = 0.999
"""a bar that has once been full stops its clock"""

app = App(
    name="bench",
    help="Measure this machine: plain decoding against every proposer.",
    help_epilogue=epilogue("bench"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """What to measure, and what becomes of it."""

    quick: bool = False
    "A rough table in a minute and a half; on a busy machine it has fewer cases, and takes longer."
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
    runs: PositiveInt | None = None
    "How often everything is measured; otherwise 5 times."
    cases: PositiveInt | None = None
    "Only so many cases of each workload."
    llama_server: Path | None = None
    "llama.cpp's server, to compare with; otherwise the one on PATH."
    model: ModelName = None
    "Model to measure; otherwise the bundled pair, inflated to the cost of 0.5 billion parameters."
    draft: Annotated[str | None, Parameter(completer=drafts)] = None
    "Its draft model: a name, a path, `none` or, otherwise, `auto`."
    backend: Literal["auto", "llama_cpp", "mlx"] | None = None
    "What runs the model of -m; otherwise the config's."


NO_FLAGS = BenchFlags()
OF_FROM = {"from_", "json", "report"}
OF_RECORD = {"record", "quick", "workload", "cases", "model", "draft", "backend"}
"""the options that have a meaning beside --from, and beside --record"""


@app.default
def bench(*, flags: BenchFlags = NO_FLAGS) -> int:
    """Measure, and print a table; returns the exit code."""
    from localspec.bench.merge import merged
    from localspec.bench.results import read_results

    _check(flags)
    if flags.record is not None:
        return _record(flags, flags.record)
    if flags.from_:
        return _give_out(flags, merged([read_results(path) for path in flags.from_]))
    results, end = _measure(flags)
    code = _give_out(flags, results)
    if end is None:
        return code
    output.note(f"localspec: stopped after {len(results.runs)} runs; this is what they showed.")
    if isinstance(end, KeyboardInterrupt):
        raise end
    return _tell(end)


@app.command(help_epilogue=epilogue("bench simulate"))
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
    if flags.from_:
        _refuse_beside("--from", flags, OF_FROM)
    if flags.record is not None:
        _refuse_beside("--record", flags, OF_RECORD)
    if flags.draft is not None and flags.model is None:
        raise InvalidOptions("--draft without --model says nothing", "Give --model, or drop --draft.")
    for path in (flags.report, flags.record):
        if path is not None and not Path(os.path.abspath(os.path.expanduser(path))).parent.is_dir():
            raise InvalidOptions(f"there is no directory {path.parent}", "Name a file in one that exists.")


def _refuse_beside(option: str, flags: BenchFlags, allowed: Collection[str]) -> None:
    given = (f.name for f in fields(flags) if getattr(flags, f.name) != getattr(NO_FLAGS, f.name))
    others = ", ".join(f"--{name.strip('_').replace('_', '-')}" for name in given if name not in allowed)
    if others:
        raise InvalidOptions(
            f"{option} measures nothing: {others} would be ignored", "Drop one or the other."
        )


def _measure(flags: BenchFlags) -> tuple[Results, BaseException | None]:
    """The results, and what ended the measuring early; raised where nothing was measured until then."""
    with _Progress() as progress:
        bench = _bench(flags, progress)
        try:
            return bench.run(), None
        except (KeyboardInterrupt, Exception) as end:
            # Told after what was measured until then, whatever it is.
            if bench.results.has_something:
                return bench.results, end
            if isinstance(end, KeyboardInterrupt):
                progress.stop()
                output.note("localspec: stopped before anything was measured; nothing was written.")
            raise


def _give_out(flags: BenchFlags, results: Results) -> int:
    """Page, and table or JSON: a page that cannot be written takes nothing else along."""
    from localspec.bench.report import report_of
    from localspec.bench.results import write_whole

    problem: Exception | None = None
    try:
        if flags.report is not None:
            write_whole(flags.report, report_of(results))
    except Exception as error:  # told after the results
        problem = error
    if flags.json:
        output.json(results)
    else:
        _show(_tables(results))
    return ExitCode.OK if problem is None else _tell(problem)


def _tell(error: BaseException) -> int:
    """To stderr, even with --json: the results are the one object on stdout. Returns the exit code."""
    known = error if isinstance(error, LocalspecError) else LocalspecError(f"{type(error).__name__}: {error}")
    output.failure(known, as_json=False)
    return known.exit_code


def _record(flags: BenchFlags, path: Path) -> int:
    from localspec.bench.log import write_logs

    with _Progress() as progress:
        logs = _bench(flags, progress).record()
    write_logs(path, logs)
    output.note(f"{len(logs)} answers recorded in {path}")
    return ExitCode.OK


def _bench(flags: BenchFlags, progress: _Progress) -> Bench:
    from localspec.bench.bench import Bench

    return Bench(order_of(flags), progress.update)


def order_of(flags: BenchFlags) -> Order:
    """What these flags ask for: the pair that `localspec run` would load."""
    from localspec.bench.bench import RUNS, Order
    from localspec.engine.load import choose_here
    from localspec.models.sections import Sections

    config = load_config()
    sections = Sections(config)
    said = Options(model=flags.model, draft=flags.draft, backend=flags.backend).over(environment_options())
    options, engine, pair = sections.merged(said), config.engine, None
    if flags.model is not None:
        engine = sections.engine(flags.model)
        draft, backend = options.draft or "auto", options.backend or "auto"
        pair = choose_here(flags.model, draft, config.model_dirs, backend=backend, config=engine)
    return Order(
        target=None if pair is None else pair.target.path,
        draft=None if pair is None or pair.draft is None else pair.draft.path,
        config=engine,
        workloads=flags.workload,
        contestants=flags.contestant,
        runs=flags.runs or RUNS,
        cases=flags.cases,
        quick=flags.quick,
        llama_server=flags.llama_server,
    )


class _Progress:
    """What is being measured, on a line of stderr; now and then a new one where that is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        from localspec.bench.measure import TimeLeft

        console = Console(stderr=True)
        texts = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[left]}")
        columns = (texts[0], BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), texts[1])
        self._bar = Progress(
            *columns, console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("starting", total=1.0, left="")
        self._left = TimeLeft()
        self._told = time.monotonic()
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
        now = time.monotonic()
        if self._bar.disable and now - self._told >= LINE_S:
            self._told = now
            output.note(f"localspec: {what} ({fraction:.0%})")
        seconds = self._left(fraction, now)
        left = "" if seconds is None else f"about {_round(seconds)} left of this"
        self._bar.update(self._task, description=printable(what), completed=min(fraction, NEARLY), left=left)

    def stop(self) -> None:
        self._bar.stop()


def _round(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > MINUTES_FROM_S else f"{seconds:.0f} s"


def _show(tables: Sequence[RenderableType]) -> None:
    from rich.console import Console

    # Into a file or a pipe go whole lines, however narrow the terminal that nobody reads them on.
    console = Console(highlight=False, width=None if output.is_terminal() else WIDE)
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    output.drawn(captured.get())


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

    from localspec.bench.figures import notices_of, warning_of
    from localspec.bench.goals import NOT_MEASURED

    marks = {True: ("✓ ", "green"), False: ("✗ ", "red"), None: ("· ", "")}
    lines = Text()
    warning = warning_of(results)
    for sentence in filter(None, [warning, *notices_of(results)]):
        lines.append(f"{sentence}\n", "yellow")
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
