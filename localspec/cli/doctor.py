"""``localspec doctor``: check what works on this machine, and print remedies."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from localspec.cli import output
from localspec.cli.flags import AsJson
from localspec.config import load_config
from localspec.doctor import Finding, daemon
from localspec.doctor.examination import examine
from localspec.errors import ExitCode, InvalidOptions
from localspec.models.library import Sections
from localspec.protocol.options import Options
from localspec.wording import printable

COLOURS = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(*, as_json: AsJson = False, clients: bool = False) -> int:
    """Check what works on this machine; exits with 1 if there is a problem.

    Parameters
    ----------
    clients
        Check nothing; print lines to paste into the settings of HTTP clients.
    """
    if clients and as_json:
        raise InvalidOptions("--clients and --json cannot be combined", "Drop --clients or --json.")
    if clients:
        config = load_config()
        model = Sections(config).merge_options(Options()).model
        output.write(printable(f"The model `localspec` is the default one of all commands, now {model}.\n"))
        output.write(daemon.clients(config.http, daemon.ask().status))
        return ExitCode.OK
    # The engine's warnings, such as a home that cannot be written, are among the findings.
    logging.getLogger("localspec").addHandler(logging.NullHandler())
    progress = output.LiveProgress()
    try:
        findings = [_printable(finding) for finding in examine(progress.update)]
    finally:
        progress.stop()
    ok = all(finding.level != "problem" for finding in findings)
    if as_json:
        output.json({"findings": findings, "ok": ok})
    else:
        rows = [(each.level, each.name, _text(each)) for each in findings]
        output.table((), rows, wrapped=(2,), styles=COLOURS)
    return ExitCode.OK if ok else ExitCode.ERROR


def _printable(finding: Finding) -> Finding:
    remedy = None if finding.remedy is None else printable(finding.remedy)
    return replace(finding, sentence=printable(finding.sentence), remedy=remedy)


def _text(finding: Finding) -> str:
    return " ".join(f"{finding.sentence} {finding.remedy or ''}".splitlines()).rstrip()
