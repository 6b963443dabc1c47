"""``localspec models …``: what is on this disk."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from localspec.cli import answer, output
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, ExitCode
from localspec.models.catalogue import BUNDLED_TARGET, list_models
from localspec.protocol.messages import ModelDescription

MILLION = 1_000_000
HEADER = ("id", "format", "size", "type", "parameters", "context", "fills gaps", "state")


def list_(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Every model that can be named with -m: the bundled pair, and those of `model_dirs`.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    found = _find()
    if as_json:
        output.json({"models": found})
    else:
        rows = [HEADER, *(_cells(model) for model in found)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            output.write("  ".join(cells).rstrip() + "\n")
    return ExitCode.OK


def _find() -> list[ModelDescription]:
    """The daemon knows what is loaded; without one the disk is read here."""
    try:
        return list(answer.remote(lambda client: client.models(), start=False))
    except DaemonUnavailable:
        return list_models(load_config().model_dirs)


def _cells(model: ModelDescription) -> tuple[str, ...]:
    notes = ["bundled"] if model.id == BUNDLED_TARGET else []
    notes += ["loaded"] if model.loaded else []
    notes += [model.problem] if model.problem else []
    return (
        model.id,
        model.format,
        f"{model.size / MILLION:.1f} MB",
        model.quantisation or "-",
        f"{model.parameters / MILLION:.1f} M" if model.parameters else "-",
        str(model.context or "-"),
        "yes" if model.fim else "no",
        ", ".join(notes),
    )
