"""``localspec config …``: show and change the settings."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from msgspec.structs import replace

from localspec.cli import completers, output
from localspec.cli.flags import AsJson, ModelName
from localspec.cli.output import arguments, examples
from localspec.config import (
    SECTION_KEYS,
    TABLES,
    WITHOUT_TOKEN,
    Place,
    Setting,
    change,
    config_path,
    environment_options,
    find,
    load_config,
    section_name,
    settings,
)
from localspec.errors import ExitCode, InvalidOptions
from localspec.models.catalogue import BUNDLED
from localspec.models.library import Sections
from localspec.models.paths import absolute
from localspec.protocol.options import Options
from localspec.wording import printable

Key = Annotated[str, Parameter(completer=completers.settings)]
app = App(name="config", help_epilogue=examples("localspec config show", "localspec config set n_ctx 8192"))


@app.command(
    help_epilogue=examples("localspec config show --describe", "localspec config show -m qwen2.5-coder:0.5b")
)
def show(*, model: ModelName = None, describe: bool = False, as_json: AsJson = False) -> int:
    """Print every setting and its value, as a valid config.toml.

    Parameters
    ----------
    model
        Values for this model; otherwise for the default model.
    describe
        Print the meaning and the allowed values of each.
    """
    config = load_config()
    sections = Sections(config)
    given = Options(model=None if model is None else absolute(model)).over(environment_options())
    options = sections.merge_options(given)
    of = options.model or BUNDLED
    options = replace(options, model=given.model or config.options.model, draft=options.draft or "auto")
    config = replace(config, options=options, engine=sections.engine(of))
    tables = {name: getattr(config, name) for name in TABLES}
    values = {each: getattr(tables.get(each.table, config), each.name) for each in settings()}
    if as_json:
        facts = ("key", "default", "takes", "meaning")
        rows = [{"value": value, **{f: getattr(each, f) for f in facts}} for each, value in values.items()]
        output.json({"path": str(config_path()), "model": of, "settings": rows})
        return ExitCode.OK
    lines, table = [f"# {config_path()}, with the values for {of}"], ""
    for each, value in values.items():
        if each.table != table:
            table = each.table
            lines += ["", f"[{table}]"]
        lines += [f"\n# {each.meaning} ({each.takes})"] if describe else []
        lines.append(f"# {each.name} is {each.unset}" if value is None else f"{each.name} = {_toml(value)}")
    output.write(printable("\n".join(lines) + "\n"))
    return ExitCode.OK


@app.command(
    name="set",
    usage=arguments("config set", "KEY [VALUE]"),
    help_epilogue=examples(
        "localspec config set n_ctx 8192",
        "localspec config set temperature 0.2 -m qwen2.5-coder:0.5b",
        """localspec config set model_dirs '["~/models"]'""",
        "localspec config set n_ctx --unset",
    ),
)
def set_(
    key: Key,
    value: Annotated[str | None, Parameter(completer=completers.values)] = None,
    /,
    *,
    model: ModelName = None,
    unset: bool = False,
) -> int:
    """Write one setting to config.toml, for all models or for one; or remove it.

    Comments and order stay as they are.

    Parameters
    ----------
    key
        Such as `n_ctx` or `engine.n_ctx`; `localspec config show --describe` explains all.
    value
        The new value; a list as in TOML: '["one", "two"]'.
    model
        Set it for this model only, by any of its names.
    unset
        Remove it from the file instead: the default applies again.
    """
    if unset == (value is not None):
        message = "`config set` needs either a value or --unset"
        raise InvalidOptions(message, "See `localspec config set --help`.")
    setting = find(key)
    parsed = None if value is None else _from_here(setting, value)
    place = _place(setting, model)
    change(place, parsed)
    name = f"{place[-1]} of {section_name(place[1])}" if model else setting.key
    is_now = "is not set" if value is None else f"is {_toml(parsed)}"
    output.note(f"{name} {is_now} in {config_path()}.")
    if setting.key == "http.without_token" and parsed:
        output.note(f"{WITHOUT_TOKEN}.")
    return ExitCode.OK


@app.command
def path() -> int:
    """Print the path of config.toml."""
    output.write(printable(f"{config_path()}\n"))
    return ExitCode.OK


def _toml(value: object) -> str:
    """A value in TOML, which for these settings is the same as JSON."""
    return msgspec.json.encode(value).decode()


def _place(setting: Setting, model: str | None) -> Place:
    """The place of a setting in the file, or in a model's section by the name that this already has there."""
    if model is None:
        return (setting.table, setting.name) if setting.table else (setting.name,)
    if setting.name not in SECTION_KEYS:
        message = f"{setting.key} cannot be set for one model"
        raise InvalidOptions(message, "Set it for all models, without -m.")
    name = absolute(model)
    return ("models", next(iter(Sections(load_config()).of_model(name)), name), setting.name)


def _from_here(setting: Setting, text: str) -> Any:
    """The typed value with absolute paths: the daemon's working directory is another one."""
    if setting.name in ("model", "draft"):
        text = absolute(text)
    if setting.name == "workspace" and text:
        text = os.path.abspath(os.path.expanduser(text))
    return setting.parse(text)
