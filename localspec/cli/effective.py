"""The effective value of every setting, and its source."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from localspec.cli.here import workspace_from_here
from localspec.config import (
    Config,
    config_path,
    environment_options,
    load_config,
    parse_config,
    parse_toml,
    read_toml,
    section_name,
)
from localspec.errors import LocalspecError, ModelError, ModelNotFound
from localspec.models.bundled import BUNDLED
from localspec.models.library import find, is_path
from localspec.models.sections import Layer, Sections
from localspec.protocol.options import Options
from localspec.renamed import by_present_names
from localspec.settings import Setting, settings

FILE = "config.toml"
DEFAULT = "default"
COMMAND_LINE = "command line"
NOT_THERE = (
    "This shell finds it; the daemon was started with other settings or another environment (HF_HOME, "
    "OLLAMA_MODELS, …): run `localspec daemon restart`; for a service, `localspec service install` first."
)


class Effective(NamedTuple):
    """``source``: the flag, the variable, the section or the file that sets it, or ``default``."""

    setting: Setting
    value: Any
    source: str


class Settled(NamedTuple):
    """All settings, with their values for this model and workspace."""

    model: str
    workspace: str | None
    rows: tuple[Effective, ...]


def settle(given: Options, *, place: str) -> Settled:
    """The settings for the options ``given`` on the command line; raises :class:`InvalidOptions`.

    ``place``: the source of their workspace.
    """
    path = str(config_path())
    text = read_toml(config_path())
    values = parse_toml(text, where=path)
    sections, environment = Sections(parse_config(values, where=path, text=text)), environment_options()
    values = by_present_names(values)
    wanted = given.over(environment)
    merged = sections.merged(wanted)
    merged = replace(merged, draft=merged.draft or "auto")
    layers = [
        Layer(COMMAND_LINE, replace(given, workspace=None)),
        Layer(place, given),
        *(_variable(name, environment) for name in ("model", "draft", "proposer", "backend")),
        *sections.layers(wanted),
    ]
    model = merged.model or BUNDLED
    engine = sections.engine(model)
    rows = []
    for setting in settings():
        table = {"engine": engine, "options": merged}.get(setting.table) or _table(sections.config, setting)
        value = getattr(table, setting.name)
        source = (
            FILE if setting.name in (values.get(setting.table, {}) if setting.table else values) else DEFAULT
        )
        if setting.table == "engine":
            source = next(_sections_with(setting, sections, model), source)
        if setting.table == "options":
            source = next(_layers_with(setting, value, layers, source), DEFAULT)
        rows.append(Effective(setting, value, source))
    return Settled(model, merged.workspace, tuple(rows))


def explained(error: ModelError, arguments: Sequence[str]) -> ModelError:
    """The error, with the source of the name in it if that is not one of the typed ``arguments``."""

    try:
        rows = settle(Options(workspace=workspace_from_here()), place="this directory").rows
    except LocalspecError:
        return error
    rows = tuple(row for row in rows if row.setting.name in ("model", "draft"))
    error = _here(error, (*arguments, *(row.value for row in rows)))
    for name, value, source in ((row.setting.name, row.value, row.source) for row in rows):
        if source == DEFAULT or any(value in each for each in arguments):
            continue
        path = os.path.normpath(os.path.expanduser(value))
        if repr(value) in error.message or (is_path(value) and path in error.message):
            message = f"{source} sets {name} = {value!r}: {error.message}"
            remedy = error.remedy if error.remedy == NOT_THERE else _remedy(name, source)
            return type(error)(message, remedy)
    return error


def _here(error: ModelError, given: Iterable[str]) -> ModelError:
    """The error; for a name that this shell finds and the daemon does not, with a remedy for that."""
    names = (name for each in given for name in (each, each.partition("=")[2]))
    wanted = next((name for name in names if name and repr(name) in error.message), None)
    if not isinstance(error, ModelNotFound) or wanted is None:
        return error
    try:
        find(wanted, load_config().model_dirs)
    except LocalspecError:
        return error
    return ModelNotFound(error.message, NOT_THERE)


def _remedy(name: str, source: str) -> str:
    """The remedy that replaces the model named by this source."""
    if source.startswith("LOCALSPEC_"):
        return f"Set it to a name of `localspec models list`, or run `unset {source}`."
    key = name if source == FILE else shlex.quote(f"{source[1:-1]}.{name}")
    return (
        f"Run `localspec config set {key} NAME` with a name of `localspec models list`, "
        f"or `localspec config set {key} --unset`."
    )


def _table(config: Config, setting: Setting) -> object:
    return getattr(config, setting.table) if setting.table else config


def _sections_with(setting: Setting, sections: Sections, model: str) -> Iterator[str]:
    for name in sections.of_model(model):
        if setting.name in sections.config.models[name].engine:
            yield section_name("models", name)


def _layers_with(setting: Setting, value: object, layers: list[Layer], of_last: str) -> Iterator[str]:
    """The sources that set this value; a layer's other value may be void: a draft belongs to its model."""
    *above, last = ((layer.source, getattr(layer.options, setting.name)) for layer in layers)
    yield from (source for source, own in above if own is not None and own == value)
    if last[1] == value:
        yield of_last


def _variable(name: str, environment: Options) -> Layer:
    return Layer(f"LOCALSPEC_{name.upper()}", Options(**{name: getattr(environment, name)}))
