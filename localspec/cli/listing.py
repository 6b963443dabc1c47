"""Models printed as text: a table, or all facts of one."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.cli import answer, output
from localspec.errors import INSTALL_MLX, DaemonUnavailable
from localspec.models.catalogue import BUNDLED
from localspec.models.index import mark_loaded
from localspec.models.model import NEEDS_MLX, Model, count, name_of, needs_mlx
from localspec.models.stores import TITLES
from localspec.protocol.messages import ModelDescription, ModelList
from localspec.wording import one_line, size

HEADER = ("name", "size", "type", "params", "context", "fill-in", "state")
"""columns of a list of models; ``fill-in``: the model fills in the middle"""
WHOLE = 22
"""characters of a name beside which the other columns fit into 80"""


def show_all(found: ModelList, default: str) -> None:
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
    """A model in the columns of :data:`HEADER`."""
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
