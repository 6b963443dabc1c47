"""``localspec doctor``: check what works on this machine, and print remedies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from localspec.cli import output
from localspec.config import load_config
from localspec.errors import ExitCode, InvalidOptions
from localspec.wording import printable

if TYPE_CHECKING:
    from localspec.doctor.finding import Finding

COLOURS = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    *,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    clients: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Check what works on this machine; exits with 1 if there is a problem.

    Parameters
    ----------
    as_json
        Print one JSON object: ok, and findings with name, level, sentence, remedy.
    clients
        Check nothing; print lines to paste into the settings of HTTP clients.
    """
    if clients and as_json:
        raise InvalidOptions("--clients and --json cannot be combined", "Drop --clients or --json.")
    if clients:
        return _clients()
    from localspec.doctor.examination import examine

    # The engine's warnings, such as a home that cannot be written, are among the findings.
    logging.getLogger("localspec").addHandler(logging.NullHandler())
    progress = output.Progress()
    try:
        findings = [_printable(finding) for finding in examine(progress.update)]
    finally:
        progress.stop()
    ok = all(finding.level != "problem" for finding in findings)
    if as_json:
        output.json({"findings": findings, "ok": ok})
    elif output.is_terminal():
        output.drawn(_table(findings))
    else:
        output.write("".join(f"{line}\n" for line in _lines(findings)))
    return ExitCode.OK if ok else ExitCode.ERROR


def _clients() -> int:
    from localspec.doctor import daemon

    output.write(daemon.clients(load_config().http, daemon.ask().status))
    return ExitCode.OK


def _printable(finding: Finding) -> Finding:
    remedy = None if finding.remedy is None else printable(finding.remedy)
    return replace(finding, sentence=printable(finding.sentence), remedy=remedy)


def _text(finding: Finding) -> str:
    return " ".join(f"{finding.sentence} {finding.remedy or ''}".splitlines()).rstrip()


def _lines(findings: Sequence[Finding]) -> list[str]:
    levels, names = (max(len(getattr(each, part)) for each in findings) for part in ("level", "name"))
    return [f"{each.level:{levels}}  {each.name:{names}}  {_text(each)}" for each in findings]


def _table(findings: Sequence[Finding]) -> str:
    """The findings in colours, with wrapped sentences."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for finding in findings:
        # As Text: brackets, as in a file's name, would be read as markup.
        table.add_row(Text(finding.level, COLOURS[finding.level]), finding.name, Text(_text(finding)))
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
