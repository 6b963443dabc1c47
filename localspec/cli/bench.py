"""``localspec bench``: plain decoding against speculation on a model, and the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import Number

from localspec.cli import answer, output
from localspec.cli.app import examples
from localspec.cli.flags import PROPOSERS, SPECULATION, AsJson, BackendName, DraftName, ModelName
from localspec.config import environment_options, load_config
from localspec.errors import ExitCode
from localspec.protocol.options import Options, ProposerName, check_value
from localspec.protocol.proposer_kinds import AUTO, LOOKUP

if TYPE_CHECKING:
    from localspec.bench.results import Results
    from localspec.bench.run import Order

FIXED_K = 4
BUSY = 0.05
"""difference of two plain answers from which the table warns of a busy machine"""

app = App(
    name="bench",
    help="Measure a model on this machine: plain decoding against speculation, in turn.",
    help_epilogue=examples(
        "localspec bench",
        "localspec bench --workload edit --workload code --plot bench.svg",
        "localspec bench --record answers.jsonl --runs 1",
    ),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """The flags of the measurement and of its output."""

    model: ModelName = None
    "Model to measure; otherwise the configured one."
    draft: DraftName = None
    "Its draft model: a name, a path, `none` or `auto`."
    backend: BackendName | None = None
    "Backend that runs the model; otherwise the configured one."
    proposer: Annotated[ProposerName, Parameter(group=SPECULATION, help=PROPOSERS)] = AUTO
    k: Annotated[int | None, Parameter(name="-k", group=SPECULATION)] = None
    "Maximum draft tokens per round, 1 to 20."
    workload: tuple[str, ...] = ()
    "Only this workload; may be repeated."
    tokens: Annotated[int, Parameter(validator=Number(gte=2))] = 128
    "Maximum tokens of an answer, at least 2."
    runs: PositiveInt = 2
    "Number of repetitions of each case."
    json: bool = False
    "Print one JSON object: the figures, and each run."
    plot: Path | None = None
    "Draw the figures into this SVG file."
    record: Path | None = None
    "Write the plain answers as token logs for `bench simulate` to this file."


@app.default
def bench(*, flags: BenchFlags | None = None) -> int:
    """Measure, and print a table; returns the exit code."""
    from localspec.bench.results import svg_of
    from localspec.bench.run import measure
    from localspec.bench.simulate import check_place, write_logs, write_whole

    flags = flags or BenchFlags()
    for path in (flags.plot, flags.record):
        if path is not None:
            check_place(path)
    order, progress = order_of(flags), output.Progress()
    try:
        with output.warnings_as_notes():
            results, logs = measure(order, progress.update)
    finally:
        progress.stop()
    if flags.json:
        output.json(results)
    else:
        _print(results)
    if flags.record is not None:
        write_logs(flags.record, logs)
    if flags.plot is not None:
        write_whole(flags.plot, svg_of(results))
    return ExitCode.INTERRUPTED if results.stopped else ExitCode.OK


@app.command(
    help_epilogue=examples(
        "localspec bench simulate answers.jsonl --proposer memory -k 8",
        "localspec bench simulate answers.jsonl --proposer auto --cost 1=12,5=42,16=72",
    )
)
def simulate(
    log: Path,
    *,
    proposer: str = LOOKUP.name,
    k: Annotated[int | None, Parameter(name="-k")] = None,
    cost: str | None = None,
    draft_cost: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    as_json: AsJson = False,
) -> int:
    """Replay token logs through a proposer, without a model: exact counts, times by a given cost curve.

    Parameters
    ----------
    log
        File that `localspec bench --record` wrote.
    proposer
        Source of draft tokens: a proposer, auto (which chooses among them), none, or hindsight, which knows
        the answer: the least time that auto could take.
    k
        Maximum draft tokens per round, 1 to 20; otherwise 4, or 47 for auto and hindsight.
    cost
        Milliseconds of a forward by its width, such as 1=12,2=27,5=42.
    draft_cost
        Milliseconds of the draft model's forward of one token, if the answers were recorded with one.
    """
    from localspec.bench.simulate import EXAMPLE, HINDSIGHT, by_workload, parse_costs, read_logs
    from localspec.bench.simulate import simulate as run
    from localspec.engine.proposers import LONGEST_K

    check_value(Options, "k", k, said="-k")
    k = k or (LONGEST_K if proposer in (AUTO, HINDSIGHT) else FIXED_K)
    line = EXAMPLE if cost is None else parse_costs(cost)
    share = None if draft_cost is None else draft_cost / 1000 / line(1)
    logs = read_logs(log)
    plays = by_workload(logs, run(logs, proposer, k=k, cost=line, draft_share=share))
    if as_json:
        output.json({"workloads": {name: play.facts() for name, play in plays.items()}})
        return ExitCode.OK
    rows = []
    for name, play in plays.items():
        counts = str(play.tokens), str(play.rounds), f"{play.accepted}/{play.drafted}"
        rows.append(
            (name, *counts, _or_dash("{:.2f}", play.tokens_per_round), _or_dash("{:.2f}x", play.speed))
        )
    header = ("workload", "tokens", "rounds", "accepted", "tokens/round", "speed")
    output.table(header, rows, numbers=range(1, 6))
    return ExitCode.OK


def order_of(flags: BenchFlags) -> Order:
    """The order of these flags, with the pair that `localspec run` would load."""
    from localspec.bench.run import Order

    if flags.k is not None:
        check_value(Options, "k", flags.k, said="-k")
    given = Options(model=flags.model, draft=flags.draft, backend=flags.backend).over(environment_options())
    _, engine, pair = answer.chosen(given, load_config())
    return Order(
        pair=pair,
        config=engine,
        proposer=flags.proposer,
        k=flags.k,
        workloads=flags.workload,
        tokens=flags.tokens,
        runs=flags.runs,
    )


def _print(results: Results) -> None:
    draft = f" with {results.draft}" if results.draft else ""
    title = f"{results.model}{draft}: {results.proposer} against plain decoding, on {results.machine}"
    header = ("workload", "plain", results.proposer, "ratio", "worst", "accepted", "tokens/round")
    rows = []
    for each in results.figures:
        speeds = f"{each.plain:.1f} tok/s", f"{each.speculative:.1f} tok/s"
        ratios = f"{each.ratio:.2f}x", f"{each.worst:.2f}x"
        counts = _or_dash("{:.0%}", each.acceptance), f"{each.tokens_per_round:.2f}"
        rows.append((each.workload, *speeds, *ratios, *counts))
    output.write(f"{title}\n\n")
    output.table(header, rows, numbers=range(1, 7))
    output.write("".join(f"\n{notice}\n" for notice in _notices(results)))


def _notices(results: Results) -> list[str]:
    found = ["Stopped: these are the runs until then."] if results.stopped else []
    if results.noise is not None:
        busy = ": the machine was busy, measure again" if results.noise > BUSY else ""
        found.append(f"Plain decoding differed from itself by at most {results.noise:.0%}{busy}.")
    if different := [figure.workload for figure in results.figures if not figure.equal]:
        found.append(f"The texts are not those of plain decoding in: {', '.join(different)}.")
    if results.left_out:
        found.append(f"Not measured: {', '.join(results.left_out)}.")
    return found


def _or_dash(form: str, value: float | None) -> str:
    return "-" if value is None else form.format(value)
