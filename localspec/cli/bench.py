"""``localspec bench``: plain decoding against speculation on a model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import Number

from localspec.bench.run import Order, Results, measure
from localspec.cli import local, output
from localspec.cli.flags import PROPOSERS, SPECULATION, DraftName, ModelName
from localspec.cli.output import examples
from localspec.config import environment_options, load_config
from localspec.errors import ExitCode, LocalspecError
from localspec.protocol.options import AUTO, BackendName, Options, ProposerName, check_value

BUSY = 0.05
"""difference of two plain answers from which the table warns of a busy machine"""

app = App(
    name="bench",
    help_epilogue=examples(
        "localspec bench",
        "localspec bench --workload edit --workload code",
        "localspec bench --workload code --runs 1 --proposer prompt-lookup -k 4",
    ),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchFlags:
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


@app.default
def bench(*, flags: BenchFlags | None = None) -> int:
    """Measure, and print a table; returns the exit code."""
    flags = flags or BenchFlags()
    order, progress = order_of(flags), output.LiveProgress(lines=True)
    try:
        with output.warnings_as_notes():
            results = measure(order, progress.update, _end_on_lost_node)
    finally:
        progress.stop()
    if flags.json:
        output.json(results)
    else:
        _print(results)
    return ExitCode.INTERRUPTED if results.stopped else ExitCode.OK


def _end_on_lost_node(error: LocalspecError) -> None:
    """Report the loss of a node, and end this process: native code may wait for that node for ever."""
    output.failure(error, as_json=False)
    os._exit(error.exit_code)


def order_of(flags: BenchFlags) -> Order:
    """The order of these flags, with the pair that `localspec run` would load."""
    if flags.k is not None:
        check_value(Options, "k", flags.k, said="-k")
    given = Options(model=flags.model, draft=flags.draft, backend=flags.backend).over(environment_options())
    _, engine, pair = local.choose_pair(given, load_config())
    return Order(pair, engine, flags.proposer, flags.k, flags.workload, flags.tokens, flags.runs)


def _print(results: Results) -> None:
    draft = f" with {results.draft}" if results.draft else ""
    title = f"{results.model}{draft}: {results.proposer} against plain decoding, on {results.machine}"
    header = ("workload", "plain", results.proposer, "ratio", "worst", "accepted", "tokens/round")
    rows = []
    for each in results.figures:
        speeds = f"{each.plain:.1f} tok/s", f"{each.speculative:.1f} tok/s"
        ratios = f"{each.ratio:.2f}x", f"{each.worst:.2f}x"
        accepted = "-" if each.acceptance is None else f"{each.acceptance:.0%}"
        rows.append((each.workload, *speeds, *ratios, accepted, f"{each.tokens_per_round:.2f}"))
    output.write(f"{title}\n\n")
    output.table(header, rows, numbers=range(1, len(header)))
    output.write("".join(f"\n{notice}\n" for notice in _notices(results)))


def _notices(results: Results) -> list[str]:
    found = ["Stopped: these are the runs until then."] if results.stopped else []
    if results.noise is not None:
        busy = ": the machine was busy, measure again" if results.noise > BUSY else ""
        found.append(f"Plain decoding differed from itself by at most {results.noise:.0%}{busy}.")
    if different := [figure.workload for figure in results.figures if not figure.equal]:
        names = ", ".join(different)
        found.append(f"Other texts than plain ones: {names}. `config set exactness strict` allows none.")
    if results.left_out:
        found.append(f"Not measured: {', '.join(results.left_out)}.")
    return found
