"""``localspec bench``: measure the speedup by speculation on this machine, and simulate proposers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Generic, Literal, Protocol, TypeVar

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from localspec.bench.log import Log, read_logs, write_logs
from localspec.bench.results import CONTROL, PLAIN, Figure, Results, write_whole
from localspec.cli import output
from localspec.cli.completers import drafts
from localspec.cli.examples import epilogue
from localspec.cli.flags import ModelName
from localspec.config import environment_options, load_config
from localspec.errors import ExitCode, InvalidOptions, LocalspecError
from localspec.models.sections import Sections
from localspec.protocol.options import Options
from localspec.protocol.proposer_kinds import LOOKUP
from localspec.wording import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from localspec.bench.bench import Order
    from localspec.bench.simulate import Play
    from localspec.bench.stand import Tell

R = TypeVar("R", bound=Results)
R_co = TypeVar("R_co", bound=Results, covariant=True)

FIXED_K = 4
WIDE = 120
MINUTES_FROM_S = 90
LINE_S = 15.0
"""seconds between two lines of progress where there is no terminal"""
NEARLY = 0.999
"""largest share shown before the end: a bar that was full once stops its clock"""

app = App(
    name="bench",
    help="Measure this machine: plain decoding against every proposer.",
    help_epilogue=epilogue("bench"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """The flags of the measurement and of its output."""

    quick: bool = False
    "Measure a rough table in some minutes; on a busy machine it has fewer cases and takes longer."
    json: bool = False
    "Print one JSON object: everything, raw runs included."
    report: Path | None = None
    "Write an HTML page with plots to this file."
    record: Path | None = None
    "Measure nothing: write the plain answers as token logs for `bench simulate`."
    workload: tuple[str, ...] = ()
    "Only this workload; may be repeated."
    contestant: tuple[str, ...] = ()
    "Only this contestant, beside plain decoding; may be repeated."
    runs: PositiveInt | None = None
    "Number of repetitions of each measurement; otherwise 5."
    cases: PositiveInt | None = None
    "At most this many cases of each workload."
    llama_server: Path | None = None
    "llama.cpp's server, to compare with; otherwise the one on PATH."
    model: ModelName = None
    "Model to measure; otherwise the bundled pair, inflated to the cost of 0.5 billion parameters."
    draft: Annotated[str | None, Parameter(completer=drafts)] = None
    "Its draft model: a name, a path, `none` or, otherwise, `auto`."
    backend: Literal["auto", "llama_cpp", "mlx"] | None = None
    "Backend that runs the model of -m; otherwise the configured one."


NO_FLAGS = BenchFlags()
OF_RECORD = {"record", "quick", "workload", "cases", "model", "draft", "backend"}
"""the flags that have a meaning beside --record"""


@app.default
def bench(*, flags: BenchFlags = NO_FLAGS) -> int:
    """Measure, and print a table; returns the exit code."""
    from localspec.bench.bench import Bench
    from localspec.bench.report import report_of

    return measured(flags, Bench, Output(tables_of, report_of))


class Measuring(Protocol[R_co]):
    """A benchmark, as :class:`localspec.bench.bench.Bench` is one."""

    @property
    def results(self) -> R_co: ...

    def run(self) -> Results: ...

    def record(self) -> list[Log]: ...


@dataclass(frozen=True)
class Output(Generic[R]):
    """What is made of results: tables in the terminal, an HTML page."""

    tables: Callable[[R], Sequence[RenderableType]]
    page: Callable[[R], str]


def measured(flags: BenchFlags, bench: Callable[[Order, Tell], Measuring[R]], out: Output[R]) -> int:
    """Do what the flags say with a benchmark; returns the exit code."""
    _check(flags)
    if flags.record is not None:
        return _record(flags, bench, flags.record)
    results, end = _measure(flags, bench)
    code = give_out(flags, results, out)
    if end is None:
        return code
    output.note(f"localspec: stopped after {len(results.runs)} runs; the results are of these runs only.")
    if isinstance(end, KeyboardInterrupt):
        raise end
    return _fail(end)


@app.command(help_epilogue=epilogue("bench simulate"))
def simulate(
    log: Path,
    *,
    proposer: str = LOOKUP.name,
    k: Annotated[int | None, Parameter(name="-k")] = None,
    cost: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Replay token logs through a proposer, without a model: exact counts, times by a given cost curve.

    Parameters
    ----------
    log
        File that `localspec bench --record` wrote.
    proposer
        Source of draft tokens: a proposer that needs no model, auto (which chooses among those) or none.
    k
        Maximum draft tokens per round, 1 to 20; otherwise 4, or 20 for auto, which chooses the number.
    cost
        Milliseconds of a forward by its width, such as 1=12,2=27,5=42.
    as_json
        Print one JSON object.
    """
    from localspec.bench.cheap import cheap_makers, make_proposer
    from localspec.bench.curve import EXAMPLE, parse_costs
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
    if flags.record is not None:
        _check_record(flags)
    if flags.draft is not None and flags.model is None:
        raise InvalidOptions("--draft needs --model", "Give --model, or drop --draft.")
    for path in (flags.report, flags.record):
        if path is not None and not Path(os.path.abspath(os.path.expanduser(path))).parent.is_dir():
            raise InvalidOptions(
                f"there is no directory {path.parent}", "Name a file in a directory that exists."
            )


def _check_record(flags: BenchFlags) -> None:
    given = (f.name for f in fields(flags) if getattr(flags, f.name) != getattr(NO_FLAGS, f.name))
    others = ", ".join(f"--{name.replace('_', '-')}" for name in given if name not in OF_RECORD)
    if others:
        raise InvalidOptions(
            f"--record measures nothing and cannot be combined with {others}", f"Drop --record or {others}."
        )


def _measure(
    flags: BenchFlags, made: Callable[[Order, Tell], Measuring[R]]
) -> tuple[R, BaseException | None]:
    """The results, and the exception that ended the measurement early; raise it if there are no results."""
    with _Progress() as progress:
        bench = made(order_of(flags), progress.update)
        try:
            bench.run()
            return bench.results, None
        except (KeyboardInterrupt, Exception) as end:
            # Reported after the results so far, whatever it is.
            if bench.results.has_something:
                return bench.results, end
            if isinstance(end, KeyboardInterrupt):
                progress.stop()
                output.note("localspec: stopped before anything was measured; nothing was written.")
            raise


def give_out(flags: BenchFlags, results: R, out: Output[R]) -> int:
    """Write the page, then print the tables or JSON, also if the page cannot be written."""
    problem: Exception | None = None
    try:
        if flags.report is not None:
            write_whole(flags.report, out.page(results))
    except Exception as error:  # reported after the results
        problem = error
    if flags.json:
        output.json(results)
    else:
        _show(out.tables(results))
    return ExitCode.OK if problem is None else _fail(problem)


def _fail(error: BaseException) -> int:
    """Print to stderr, even with --json: the results are the one object on stdout. Returns the exit code."""
    known = error if isinstance(error, LocalspecError) else LocalspecError(f"{type(error).__name__}: {error}")
    output.failure(known, as_json=False)
    return known.exit_code


def _record(flags: BenchFlags, bench: Callable[[Order, Tell], Measuring[R]], path: Path) -> int:
    with _Progress() as progress:
        logs = bench(order_of(flags), progress.update).record()
    write_logs(path, logs)
    output.note(f"{len(logs)} answers recorded in {path}")
    return ExitCode.OK


def order_of(flags: BenchFlags) -> Order:
    """The order of these flags, with the pair that `localspec run` would load."""
    from localspec.bench.bench import RUNS, Order
    from localspec.engine.load import choose_here

    config = load_config()
    sections = Sections(config)
    given = Options(model=flags.model, draft=flags.draft, backend=flags.backend).over(environment_options())
    options, engine, pair = sections.merged(given), config.engine, None
    if flags.model is not None:
        engine = sections.engine(flags.model)
        draft, backend = options.draft or "auto", options.backend or "auto"
        pair = choose_here(flags.model, draft, config.model_dirs, backend=backend, config=engine)
    return Order(
        target=None if pair is None else pair.target.path,
        draft=None if pair is None or pair.draft is None else pair.draft.path,
        config=engine,
        workloads=flags.workload or None,
        contestants=flags.contestant,
        runs=flags.runs or RUNS,
        cases=flags.cases,
        quick=flags.quick,
        llama_server=flags.llama_server,
    )


class _Progress:
    """The running measurement, on a line of stderr; without a terminal, a new line every ``LINE_S``."""

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
        self._last_line = time.monotonic()
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
        if self._bar.disable and now - self._last_line >= LINE_S:
            self._last_line = now
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

    # A file or a pipe gets whole lines, however narrow the terminal is.
    console = Console(highlight=False, width=None if output.is_terminal() else WIDE)
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    output.drawn(captured.get())


def tables_of(results: Results) -> list[RenderableType]:
    """A table of all figures, and what is to be known of them."""
    return [_figure_table(results), *_notices(results)]


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


def _notices(results: Results) -> list[RenderableType]:
    from rich.text import Text

    from localspec.bench.figures import notices_of, warning_of

    sentences = [*filter(None, [warning_of(results)]), *notices_of(results)]
    return [Text("\n".join(sentences), "yellow")] if sentences else []


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
