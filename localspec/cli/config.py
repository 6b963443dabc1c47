"""``localspec config …``: show and change the settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec.structs import replace

from localspec.cli import answer, completers, editor, output
from localspec.cli.flags import ModelName
from localspec.config import (
    CORRECT,
    TABLES,
    WITHOUT_TOKEN,
    config_path,
    environment_options,
    load_config,
    read_toml,
    renamed_settings,
    section_name,
)
from localspec.config_file import ConfigFile, scratch_beside
from localspec.errors import (
    DaemonUnavailable,
    ExitCode,
    InvalidOptions,
    LocalspecError,
    ModelError,
    ModelNotFound,
    VersionSkew,
)
from localspec.models import library
from localspec.models.bundled import BUNDLED
from localspec.models.library import absolute
from localspec.models.sections import Sections
from localspec.protocol.options import Options
from localspec.renamed import Place
from localspec.settings import Setting, find, settings
from localspec.wording import printable

AsJson = Annotated[bool, Parameter(name="--json")]
Key = Annotated[str, Parameter(completer=completers.settings)]
COLUMN = 36
"""column of the meanings"""


def show(*, model: ModelName = None, describe: bool = False, as_json: AsJson = False) -> int:
    """Print every setting and its value, as a valid config.toml.

    Parameters
    ----------
    model
        Values for this model; otherwise for the default model.
    describe
        Print the meaning and the allowed values of each.
    as_json
        Print one JSON object.
    """
    config = load_config()
    sections = Sections(config)
    given = Options(model=None if model is None else absolute(model)).over(environment_options())
    options = sections.merged(given)
    of = options.model or BUNDLED
    options = replace(options, draft=options.draft or "auto")
    config = replace(config, options=options, engine=sections.engine(of))
    tables = {name: getattr(config, name) for name in TABLES}
    values = {each: getattr(tables.get(each.table, config), each.name) for each in settings()}
    notices = renamed_settings()
    if as_json:
        rows = [_described(setting, value) for setting, value in values.items()]
        output.json({"path": str(config_path()), "model": of, "settings": rows, "renamed": notices})
        return ExitCode.OK

    def line(setting: Setting) -> str:
        value, name = values[setting], setting.name
        about = f"\n# {setting.meaning} ({setting.takes})\n" if describe else ""
        return about + (f"# {name} is not set" if value is None else f"{name} = {_toml(value)}")

    output.write(printable(_document(f"# {config_path()}, with the values for {of}", line)))
    for notice in notices:
        output.note(f"{notice}. {CORRECT}")
    return ExitCode.OK


def set_(
    key: Key,
    value: Annotated[str | None, Parameter(completer=completers.values)] = None,
    /,
    *,
    model: ModelName = None,
    unset: Annotated[bool, Parameter(name=["--unset", "--default", "--remove"])] = False,
    as_json: AsJson = False,
) -> int:
    """Write one setting to config.toml; comments and order stay as they are.

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
    as_json
        Print one JSON object.
    """
    if unset == (value is not None):
        raise InvalidOptions(
            "`config set` needs either a value or --unset",
            "Give one of them: `localspec config set KEY VALUE`, or `localspec config set KEY --unset`.",
        )
    file, parsed = ConfigFile(), None
    if value is None:
        place = _place_to_unset(key, model)
        config = file.unset(place)
    else:
        setting = find(key)
        place = _place(setting, model)
        parsed = _from_here(setting, value)
        config = file.set(place, parsed)
    name = f"{place[-1]} of {section_name(place[1])}" if place[0] == "models" else ".".join(place)
    daemon = _daemon_runs_with()
    if as_json:
        output.json({"path": str(file.path), "key": name, "value": parsed, "daemon": daemon})
        return ExitCode.OK
    is_now = "is no longer set" if value is None else f"is {_toml(parsed)}"
    output.note(f"{name} {is_now} in {file.path}.")
    if name == "http.without_token" and parsed:
        output.note(f"{WITHOUT_TOKEN}.")
    for wanted in (parsed if place[-1] == "model" else None, place[1] if place[0] == "models" else None):
        if isinstance(wanted, str):
            _tell_of_a_missing_model(wanted, config.model_dirs)
    _tell_of_the_daemon(daemon)
    return ExitCode.OK


def path(*, as_json: AsJson = False) -> int:
    """Print the path of config.toml, also if the file does not exist.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    found = config_path()
    if as_json:
        output.json({"path": str(found), "exists": found.exists()})
    else:
        output.write(printable(f"{found}\n"))
    return ExitCode.OK


def edit() -> int:
    """Open config.toml in your editor ($VISUAL or $EDITOR); an edit that is not valid is refused."""
    file = ConfigFile()
    before = read_toml(file.path)
    begun = before or _template()
    scratch = scratch_beside(file.path, begun)
    try:
        editor.edit(scratch)
        text = read_toml(scratch)
        if text != begun:
            if not text.strip():  # as a full disk may leave it
                raise InvalidOptions("the edited file is empty", "For the defaults, delete config.toml.")
            file.replace(text, was=before)
    except LocalspecError as error:
        if scratch.exists() and scratch.read_bytes() not in (begun.encode(), b""):
            error.remedy = f"{file.path} is as it was; your edit is kept in {scratch}. {error.remedy}"
        else:
            scratch.unlink(missing_ok=True)
        raise
    scratch.unlink()
    if text == begun:
        output.note("Nothing has changed. (An editor that returns at once needs a flag to wait.)")
        return ExitCode.OK
    output.note(f"{file.path} was changed and is valid.")
    _tell_of_the_daemon(_daemon_runs_with())
    return ExitCode.OK


def _described(setting: Setting, value: Any) -> dict[str, Any]:
    facts = {name: getattr(setting, name) for name in ("key", "default", "takes", "meaning")}
    return {**facts, "value": value}


def _toml(value: object) -> str:
    """A value in TOML, which for these settings is the same as JSON."""
    return msgspec.json.encode(value).decode()


def _template() -> str:
    """All settings with their defaults as comments, for a new file."""

    def line(setting: Setting) -> str:
        default = "" if setting.default is None else f" {_toml(setting.default)}"
        return f"{f'# {setting.name} ={default}':{COLUMN}} # {setting.meaning}"

    head = "# Settings of localspec. What is not set here has its default."
    return _document(head, line) + f"\n# {section_name('qwen2.5-coder:7b')}\n"


def _document(head: str, line: Callable[[Setting], str]) -> str:
    """All settings in their tables, a line for each."""
    lines, table = [head], ""
    for setting in settings():
        if setting.table != table:
            table = setting.table
            lines += ["", f"[{table}]"]
        lines.append(line(setting))
    return "\n".join(lines) + "\n"


def _place(setting: Setting, model: str | None) -> Place:
    """The place of a setting in the file, or in a model's section by the name that this already has there."""
    if model is None:
        return (setting.table, setting.name) if setting.table else (setting.name,)
    name = absolute(model)
    name = next(iter(Sections(load_config()).of_model(name)), name)
    if not setting.is_for_models:
        raise InvalidOptions(
            f"{setting.key} cannot be set for {section_name(name)}", "Set it for all models, without -m."
        )
    return ("models", name, setting.name)


def _place_to_unset(key: str, model: str | None) -> Place:
    """As :func:`_place`; an unknown setting, which a file can have too, is taken by its name."""
    try:
        return _place(find(key), model)
    except InvalidOptions:
        if key in (*TABLES, "models") or model is not None:
            raise
        return tuple(key.split("."))


def _from_here(setting: Setting, text: str) -> Any:
    """The typed value with absolute paths: the daemon's working directory is another one."""
    if setting.name in ("model", "draft"):
        text = absolute(text)
    value = setting.parse(text)
    if setting.name == "model_dirs":
        return tuple(each if each.startswith("~") else os.path.abspath(each) for each in value)
    if setting.name == "workspace" and value:
        return os.path.abspath(os.path.expanduser(value))
    return value


def _tell_of_a_missing_model(name: str, model_dirs: tuple[str, ...]) -> None:
    try:
        library.find(name, model_dirs)
    except ModelNotFound as error:
        output.note(printable(f"This model is not on this disk now: {error.message}."))
    except ModelError:  # it is there, and reported as broken when it is loaded
        pass


def _daemon_runs_with() -> str:
    """``none``: no daemon runs; ``current``: it has these settings; ``stale``: it has others."""
    try:
        running = answer.remote(lambda client: client.status(), start=False)
    except VersionSkew:
        return "stale"
    except DaemonUnavailable:
        return "none"
    return "current" if running.settings == "current" else "stale"


def _tell_of_the_daemon(daemon: str) -> None:
    if daemon == "stale":
        output.note("The daemon runs with other settings; the next command replaces it if it is idle.")
