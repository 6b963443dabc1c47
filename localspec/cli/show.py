"""``localspec models show``: all facts of one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import replace

from localspec.cli import completers, output
from localspec.cli.flags import AsJson
from localspec.cli.models import describe_all
from localspec.config import load_config
from localspec.engine.load import plan_placement, room_for
from localspec.errors import INSTALL_MLX, ExitCode, ModelError, ModelInvalid, ModelTooLarge
from localspec.models.descriptions import NEEDS_MLX, count, name_of, needs_mlx
from localspec.models.fit import equal_layers, plan_context, servers_of
from localspec.models.index import recent_disk
from localspec.models.library import Sections, find, match_models
from localspec.models.machine import free_memory, has_device_code
from localspec.models.model import model_at
from localspec.models.needs import context_size
from localspec.models.paths import absolute
from localspec.models.stores import TITLES
from localspec.protocol.messages import ModelDescription
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig
from localspec.wording import count_noun, describe_placement, one_line, size

PARTS = {"weights": "weights", "cells": "KV cache", "overhead": "overhead"}


def show(
    model: Annotated[str, Parameter(completer=completers.complete_models)], /, *, as_json: AsJson = False
) -> int:
    """Show the facts of one model: its paths, its header, and the memory that it needs.

    Parameters
    ----------
    model
        A name of `localspec models list` or the beginning of one, or a path.
    """
    config = load_config()
    found, others = _one(absolute(model), config.model_dirs)
    needs = memory_of(found, Sections(config).engine(found.path))
    if as_json:
        output.json({"model": found, "memory": needs, "others": others})
    else:
        show_one(found, needs, others, Sections(config).merge_options(Options()).model or "")
    return ExitCode.OK


def _one(name: str, model_dirs: tuple[str, ...]) -> tuple[ModelDescription, list[ModelDescription]]:
    """The model of a name, broken or not, and others that the name may mean; raises :class:`ModelError`."""
    with output.progressing("reading the models on this disk"):
        known = recent_disk(model_dirs).found
    found = [each.description for each in match_models(name, known)]
    try:
        model = find(name, model_dirs)
    except ModelInvalid:
        if found:
            return found[0], []
        raise
    same = next((each for each in known if each.place == model.place), model)
    return describe_all([same])[0], [each for each in found if each != same.description]


def memory_of(model: ModelDescription, config: EngineConfig) -> dict[str, Any] | None:
    """Bytes that a model needs without a draft, its sequences, free bytes, its place; None if broken."""
    if model.problem is not None:
        return None
    try:
        target = model_at(Path(model.path))
        if servers_of(target, config):
            config = replace(config, gpu_layers=equal_layers(target, config))
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


def show_one(
    model: ModelDescription, memory: dict[str, Any] | None, others: Sequence[ModelDescription], default: str
) -> None:
    """Print a model's facts, one a line, whether it is ``default``, and ``others`` that its name may mean."""
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
    yield "format", f"{model.format}, in {count_noun(model.parts, 'file')}, for {model.backend}"
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
        context = f"{count_noun(memory['sequences'], 'sequence')} of {memory['n_ctx']} tokens"
        needs = f"{size(memory['total'])} with {context} ({parts})"
        yield "memory", f"{needs}; {size(memory['free'])} are free: it {fits}"
        if "layers_elsewhere" in memory:
            layers = count_noun(memory["layers_elsewhere"], "layer")
            yield "elsewhere", f"{layers} on the servers of rpc, as far as they have room"
    placement = model.placement if model.loaded or memory is None else memory["placement"]
    if placement is not None:
        yield "placement", f"{'loaded' if model.loaded else 'planned'}: {describe_placement(placement)}"
    if needs_mlx(model):
        yield "state", f"{NEEDS_MLX}. {INSTALL_MLX}"
    if model.problem:
        yield "problem", model.problem
        yield "remedy", model.remedy or "-"
