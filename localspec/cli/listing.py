"""Models printed as text: a table, or all facts of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from localspec.cli import output
from localspec.errors import INSTALL_MLX, LocalspecError, ModelError, ModelTooLarge
from localspec.models.catalogue import BUNDLED
from localspec.models.division import equal_layers, servers_of
from localspec.models.machine import free_memory, has_device_code
from localspec.models.model import NEEDS_MLX, Model, count, model_at, name_of, needs_mlx
from localspec.models.needs import context_size
from localspec.models.stores import TITLES
from localspec.protocol.messages import ModelDescription, ModelList
from localspec.protocol.requests import EngineConfig
from localspec.wording import counted, describe_placement, one_line, size

HEADER = ("name", "size", "type", "params", "context", "fill-in", "state")
"""columns of a list of models; ``fill-in``: the model fills in the middle"""
WHOLE = 22
"""characters of a name beside which the other columns fit into 80"""
PARTS = {"weights": "weights", "cells": "KV cache", "overhead": "overhead"}


def matching(found: ModelList, wanted: str) -> ModelList:
    """The models with ``wanted`` in one of their names, and those in the store of that name."""
    wanted = wanted.lower()
    stores = (each for each in found.stores if wanted in (each.name, TITLES.get(each.name, "").lower()))
    roots = tuple(f"{store.path}/" for store in stores)

    def is_meant(model: ModelDescription) -> bool:
        named = model.store == wanted or any(wanted in name.lower() for name in model.names)
        return named or any(path.startswith(roots) for path in (model.path, *model.also))

    return replace(found, models=tuple(filter(is_meant, found.models)))


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


def memory_of(model: ModelDescription, config: EngineConfig) -> dict[str, Any] | None:
    """Bytes that a model needs without a draft, its sequences, bytes free, and the place that it would have;
    None if it is broken."""
    from localspec.engine.load import plan_placement, room_for
    from localspec.models.fit import plan_context

    if model.problem is not None:
        return None
    try:
        target = model_at(Path(model.path))
        if servers_of(target, config):
            config = _over_servers(target, config)
        room = room_for(config).free(target) if has_device_code(target.format) else None
        placement = None
        try:
            placement, config = plan_placement(target, config)
        except ModelTooLarge as error:  # the layers that are set
            output.note(f"localspec: {error.message}. {error.remedy}")
        free = free_memory() if room is None else room
        config, needs = plan_context(target, None, config, free)
    except ModelError:  # it has changed since it was read
        return None
    n_ctx = context_size(model.context, config)
    parts = {name: getattr(needs, name) for name in ("weights", "cells", "overhead", "total", "sequences")}
    elsewhere = {"layers_elsewhere": config.gpu_layers} if servers_of(target, config) else {}
    return {"n_ctx": n_ctx, **parts, **elsewhere, "free": free, "placement": placement}


def _over_servers(target: Model, config: EngineConfig) -> EngineConfig:
    """The settings with the number of layers that the servers of rpc have room for; an equal part for each
    machine where one cannot be asked now."""
    from localspec.ranks.rpc import reach_server, share_model

    try:
        return share_model(target, config, [reach_server(name, config) for name in config.rpc])
    except LocalspecError as error:
        output.note(f"localspec: {error.message}: an equal part for each machine is assumed.")
        return replace(config, gpu_layers=equal_layers(target, config))


def show_one(
    model: ModelDescription, memory: dict[str, Any] | None, others: Sequence[ModelDescription], default: str
) -> None:
    """Print the facts of a model, one a line, whether it is called ``default``, and the ``others`` that the
    given name may mean."""
    facts = list(_facts(model, memory))
    if default in model.names:
        facts.insert(1, ("default", "yes: it answers where no model is named"))
    if names := ", ".join(f"{name_of(each)} ({each.format})" for each in others):
        facts.insert(1, ("others", f"{names}: give the full name to choose one"))
    width = len("chat template")  # the longest, also if it is missing here
    for name, fact in facts:
        output.write(one_line(f"{name.ljust(width)}  {fact}") + "\n")


def _facts(model: ModelDescription, memory: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    yield "names", ", ".join(model.names or (model.id,))
    if model.title:
        yield "title", model.title
    yield "store", TITLES.get(model.store, model.store) if model.store else "none: it was given by its path"
    yield "path", model.path
    for place in model.also:
        yield "also", place
    yield "format", f"{model.format}, in {counted(model.parts, 'file')}, for {model.backend}"
    yield "size", size(model.size) if model.size else "-"
    if model.architecture is not None:  # otherwise its header was not read
        yield "architecture", model.architecture
        yield "parameters", count(model.parameters)
        yield "quantisation", model.quantisation or "-"
        yield "context", f"{model.context} tokens" if model.context else "-"
        yield "chat template", "yes" if model.template else "no"
        yield "fill-in", "yes" if model.fim else "no"
        yield "vocabulary", model.vocab_fp or "-"
    if memory is not None:
        fits = "fits" if memory["total"] <= memory["free"] else "does not fit"
        parts = ", ".join(f"{name} {size(memory[part])}" for part, name in PARTS.items())
        context = f"{counted(memory['sequences'], 'sequence')} of {memory['n_ctx']} tokens"
        needs = f"{size(memory['total'])} with {context} ({parts})"
        yield "memory", f"{needs}; {size(memory['free'])} are free: it {fits}"
        if "layers_elsewhere" in memory:
            yield "elsewhere", f"{counted(memory['layers_elsewhere'], 'layer')} on the servers of rpc"
    placement = model.placement if model.loaded or memory is None else memory["placement"]
    if placement is not None:
        yield "placement", f"{'loaded' if model.loaded else 'planned'}: {describe_placement(placement)}"
    if needs_mlx(model):
        yield "state", f"{NEEDS_MLX}. {INSTALL_MLX}"
    if model.problem:
        yield "problem", model.problem
        yield "remedy", model.remedy or "-"
