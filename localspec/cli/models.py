"""``localspec models …``: models on this disk and in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App

from localspec.cli import answer, output
from localspec.cli.flags import AsJson, DraftName, ModelFlags, ModelName
from localspec.cli.output import arguments, examples
from localspec.cli.printer import Printer
from localspec.config import load_config
from localspec.errors import INSTALL_MLX, DaemonUnavailable, ExitCode
from localspec.models.catalogue import BUNDLED
from localspec.models.descriptions import NEEDS_MLX, count, name_of, needs_mlx
from localspec.models.index import mark_loaded, read_disk
from localspec.models.library import Sections
from localspec.models.model import Model
from localspec.models.paths import absolute
from localspec.models.stores import TITLES
from localspec.protocol.messages import LoadedModel, ModelDescription, ModelList, ModelLoad
from localspec.protocol.options import BackendName, Options, check_value
from localspec.wording import one_line, size

if TYPE_CHECKING:
    from localspec.client import Client

HEADER = ("name", "size", "type", "params", "context", "fill-in", "state")
"""columns of a list of models; ``fill-in``: the model fills in the middle"""
WHOLE = 22
"""characters of a name beside which the other columns fit into 80"""
app = App(
    name="models",
    help_epilogue=examples("localspec models list", "localspec models load -m qwen2.5-coder:0.5b"),
)


@app.command(name="list", help_epilogue=examples("localspec models list", "localspec models list --json"))
def list_(*, as_json: AsJson = False) -> int:
    """List every model on this disk, also those of other programs.

    Those of `model_dirs`, the Hugging Face cache, llama.cpp, LM Studio and Ollama, and the bundled pair.
    """
    with output.progressing("reading the models on this disk"):
        disk = read_disk(load_config().model_dirs)
    found = ModelList(describe_all(disk.found), tuple(disk.stores))
    if as_json:
        output.json(found)
    else:
        _show_all(found, Sections(load_config()).merge_options(Options()).model or "")
    return ExitCode.OK


def _show_all(found: ModelList, default: str) -> None:
    """Print every model, the one that is called ``default`` marked; then the problems of stores."""
    rows = [_cells(model, default) for model in sorted(found.models, key=lambda each: each.store == BUNDLED)]
    names_are_short = all(len(row[0]) <= WHOLE for row in rows)
    output.table(HEADER, rows, numbers=(1, 3, 4), wrapped=(6,) if names_are_short else (0, 6))
    for store in found.stores:
        if store.problem:
            problem = f"{TITLES.get(store.name, store.name)}: {store.problem}. {store.remedy or ''}"
            output.note(one_line(problem).rstrip())
    if any(map(needs_mlx, found.models)):
        output.note(f"{NEEDS_MLX}: {INSTALL_MLX}")


def _cells(model: ModelDescription, default: str) -> tuple[str, ...]:
    return (
        name_of(model),
        size(model.size) if model.size else "-",
        model.quantisation or "-",
        count(model.parameters),
        str(model.context or "-"),
        "yes" if model.fim else "no",
        _state(model, default),
    )


def _state(model: ModelDescription, default: str) -> str:
    """The store of a model and remarks: default, loaded, its problem, MLX missing, its number of places."""
    notes = [model.store or "-"]
    notes += ["default"] if default in model.names else []
    notes += ["loaded"] if model.loaded else []
    notes += [model.problem] if model.problem else []
    notes += [NEEDS_MLX] if needs_mlx(model) else []
    notes += [f"in {len(model.also) + 1} places"] if model.also else []
    return ", ".join(notes)


def describe_all(models: Sequence[Model]) -> tuple[ModelDescription, ...]:
    """The descriptions of models, with those marked that a daemon has loaded."""
    try:
        loaded = answer.remote(lambda client: client.status(), start=False).models
    except DaemonUnavailable:
        loaded = ()
    return mark_loaded(models, {(each.path, each.backend): each.placement for each in loaded})


@app.command(
    usage=arguments("models load", "[MODEL]"),
    help_epilogue=examples("localspec models load -m qwen2.5-coder:0.5b --keep-alive 3600"),
)
def load(
    model: ModelName = None,
    *,
    draft: DraftName = None,
    backend: BackendName | None = None,
    keep_alive: float | None = None,
    as_json: AsJson = False,
) -> int:
    """Load a model into the daemon in advance.

    Parameters
    ----------
    model
        A name of `localspec models list`, or a path; otherwise the configured one.
    draft
        Draft model: a name, a path, `none` or `auto`.
    backend
        Backend that runs the model.
    keep_alive
        Seconds it stays loaded after its last use, instead of the configured idle_unload_s; 0: no limit.
    """
    remedy = "See `localspec models load --help`."
    check_value(ModelLoad, "keep_alive_s", keep_alive, said="--keep-alive", remedy=remedy)
    wanted = ModelFlags(model=model, draft=draft, backend=backend).options()

    async def ask(client: Client) -> LoadedModel:
        printer = Printer()
        try:
            return await answer.show(client.load(wanted, keep_alive_s=keep_alive), printer)
        finally:
            printer.close()

    loaded = answer.remote(ask)
    resident = f", {size(loaded.resident_bytes)}" if loaded.resident_bytes else ""
    line = f"{loaded.model} is loaded on {loaded.backend}, draft {loaded.draft or 'none'}{resident}"
    output.show(loaded, one_line(line) + "\n", as_json=as_json)
    return ExitCode.OK


@app.command(
    usage=arguments("models unload", "[MODEL]"),
    help_epilogue=examples("localspec models unload qwen2.5-coder:0.5b"),
)
def unload(model: ModelName = None, *, as_json: AsJson = False) -> int:
    """Unload one model or all; their memory is then free. One with running requests stays (exit code 75).

    Parameters
    ----------
    model
        Any name or path of it; otherwise all are unloaded.
    """
    name = None if model is None else absolute(model)
    try:
        unloaded = answer.remote(lambda client: client.unload(name), start=False)
    except DaemonUnavailable:
        unloaded = ()  # without a daemon no model is loaded
    if as_json:
        output.json({"models": unloaded})
    else:
        loaded = "No model is loaded." if model is None else f"{model} is not loaded."
        output.note(one_line(f"Unloaded {', '.join(unloaded)}." if unloaded else loaded))
    return ExitCode.OK


app.command(
    "localspec.cli.show:show",
    help="Show the facts of one model: its paths, its header, and the memory that it needs.",
    help_epilogue=examples("localspec models show qwen2.5-coder:0.5b"),
)
app.command(
    "localspec.cli.pull:pull",
    help="Download a model of the catalogue or of the Hugging Face hub; without a name, propose one.",
    usage=arguments("models pull", "[REPOSITORY]"),
    help_epilogue=examples(
        "localspec models pull",
        "localspec models pull qwen2.5-coder:1.5b --draft",
        "localspec models pull Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q5_K_M --draft",
        "localspec models pull mlx-community/Qwen3-4B-4bit --mlx",
    ),
)
app.command(
    "localspec.cli.pull:remove",
    name="rm",
    help="Remove a model that `models pull` downloaded; models of other programs are kept.",
    help_epilogue=examples("localspec models rm Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q5_K_M"),
)
app.command(
    "localspec.cli.pair:pair",
    help="Show which draft model is chosen for a model, and why the others are not.",
    usage=arguments("models pair", "[MODEL]"),
    help_epilogue=examples("localspec models pair qwen2.5-coder:0.5b"),
)
