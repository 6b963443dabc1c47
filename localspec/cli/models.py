"""``localspec models …``: what is on this disk, and what is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from localspec.cli import answer, completers, output
from localspec.cli.daemon import MEGABYTE
from localspec.cli.flags import ModelFlags, absolute
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, ExitCode
from localspec.models.catalogue import BUNDLED_TARGET, list_models
from localspec.protocol.messages import LoadedModel, ModelDescription

if TYPE_CHECKING:
    from localspec.client import Client

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


def load(
    *,
    model: Annotated[str | None, Parameter(name=["--model", "-m"], completer=completers.models)] = None,
    draft: Annotated[str | None, Parameter(completer=completers.drafts)] = None,
    backend: Literal["auto", "llama_cpp", "mlx"] | None = None,
    keep_alive: float | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Load a model into the daemon before it is needed.

    Parameters
    ----------
    model
        A name of `localspec models list`, or a path; otherwise the configured one.
    draft
        Draft model: a name, a path, `none` or `auto`.
    backend
        What runs the model.
    keep_alive
        Seconds it stays after its last use, instead of the configured idle_unload_s; 0: for ever.
    as_json
        Print one JSON object.
    """
    wanted = ModelFlags(model=model, draft=draft, backend=backend).options()

    async def ask(client: Client) -> LoadedModel:
        printer = output.Printer()
        try:
            stream = client.load(
                wanted.model,
                draft=wanted.draft,
                backend=wanted.backend,
                keep_alive_s=keep_alive,
                workspace=wanted.workspace,
            )
            return await answer.show(stream, printer)
        finally:
            printer.close()

    loaded = answer.remote(ask)
    if as_json:
        output.json(loaded)
    else:
        size = f", {loaded.resident_bytes / MEGABYTE:.0f} MB" if loaded.resident_bytes else ""
        draft_said = f"draft {loaded.draft or 'none'}"
        output.write(f"{loaded.model} is loaded on {loaded.backend}, {draft_said}{size}\n")
    return ExitCode.OK


def unload(
    model: Annotated[str | None, Parameter(completer=completers.models)] = None,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Unload a model, or all: their memory is free when this ends. One at work is left alone (exit code 75).

    Parameters
    ----------
    model
        A name or path that it was loaded by, or could be; otherwise all are unloaded.
    as_json
        Print one JSON object.
    """
    name = None if model is None else absolute(model)
    try:
        unloaded = answer.remote(lambda client: client.unload(name), start=False)
    except DaemonUnavailable:
        unloaded = ()  # nothing is loaded without one
    if as_json:
        output.json({"models": unloaded})
    else:
        output.note(f"Unloaded {', '.join(unloaded)}." if unloaded else "Nothing to unload.")
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
