"""``localspec models …``: what is on this disk."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from localspec.cli import answer, output
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, ExitCode
from localspec.models.catalogue import list_models
from localspec.protocol.messages import ModelDescription

MILLION = 1_000_000


def list_(*, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Every model that can be named with -m: the bundled pair, and those of `model_dirs`.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    found = _find()
    if as_json:
        output.json({"models": found})
    elif sys.stdout.isatty():
        _table(found)
    else:
        for model in found:
            output.write("\t".join(_cells(model)) + "\n")
    return ExitCode.OK


def _find() -> list[ModelDescription]:
    """The daemon knows what is loaded; without one the disk is read here."""
    try:
        return list(answer.remote(lambda client: client.models(), start=False))
    except DaemonUnavailable:
        return list_models(load_config().model_dirs)


def _cells(model: ModelDescription) -> list[str]:
    state = "loaded" if model.loaded else model.problem or ""
    return [
        model.id,
        model.architecture or "-",
        f"{model.parameters / MILLION:.1f} M" if model.parameters else "-",
        model.quantisation or "-",
        f"{model.size / MILLION:.1f} MB",
        str(model.context or "-"),
        "yes" if model.fim else "no",
        state,
    ]


def _table(found: list[ModelDescription]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "architecture", "parameters", "type", "size", "context", "fills in", "state")
    for model in found:
        table.add_row(*_cells(model))
    Console().print(table)
