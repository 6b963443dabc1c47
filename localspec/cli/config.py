"""``localspec config …``: show and change the settings."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from localspec.cli import answer, asking, completers, editor, output
from localspec.cli.effective import COMMAND_LINE, Effective, Settled, settle
from localspec.cli.flags import ModelName
from localspec.cli.here import workspace_from_here
from localspec.config import (
    RENAME,
    SECTION_EXAMPLES,
    WITHOUT_TOKEN,
    Config,
    config_path,
    load_config,
    parse_toml,
    read_toml,
    renamed_settings,
    section_name,
)
from localspec.config_file import ConfigFile
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
from localspec.models.library import absolute
from localspec.models.sections import Sections, real
from localspec.origin import Place
from localspec.protocol.options import Options
from localspec.settings import Setting, find, settings
from localspec.wording import printable

AsJson = Annotated[bool, Parameter(name="--json")]
Key = Annotated[str, Parameter(completer=completers.settings)]
COLUMN = 36
"""column of the sources"""
SECTION_FLAGS = {"models": "a model with -m MODEL", "workspaces": "a directory with --workspace DIR"}
IN_A_SECTION = 3
"""parts of a key in a section: its kind, the model or directory, the setting"""


def show(
    *, model: ModelName = None, workspace: Path | None = None, describe: bool = False, as_json: AsJson = False
) -> int:
    """Print every setting, its value and its source, as a valid config.toml.

    Parameters
    ----------
    model
        Values for this model; otherwise for the default model here.
    workspace
        Values for requests from this directory; otherwise from the current one.
    describe
        Print the meaning and the allowed values of each.
    as_json
        Print one JSON object.
    """
    settled = _settled(model, workspace)
    if as_json:
        rows = [_described(row) for row in settled.rows]
        where = {"path": str(config_path()), "model": settled.model, "workspace": settled.workspace}
        notices = {"for_no_model": _for_no_model(load_config()), "renamed": renamed_settings()}
        output.json({**where, "settings": rows, **notices})
    else:
        output.write(printable(_listed(settled, describe=describe)))
        _tell_of_no_model(load_config())
        for notice in renamed_settings():
            output.note(f"{notice}. {RENAME}")
    return ExitCode.OK


def get(
    key: Key, /, *, model: ModelName = None, workspace: Path | None = None, as_json: AsJson = False
) -> int:
    """Print the value of one setting alone: nothing if it is not set, one line for each item of a list.

    Parameters
    ----------
    key
        Such as `n_ctx` or `engine.n_ctx`; `localspec config show --describe` explains all.
    model
        Value for this model; otherwise for the default model here.
    workspace
        Value for requests from this directory; otherwise from the current one.
    as_json
        Print one JSON object, with the source.
    """
    place, setting = _place(key, model, workspace)
    if len(place) == IN_A_SECTION:
        kind, name, _ = place
        model, workspace = (name, workspace) if kind == "models" else (model, Path(name))
    settled = _settled(model, workspace)
    row = next(each for each in settled.rows if each.setting == setting)
    if as_json:
        output.json(_described(row))
    else:
        values = row.value if isinstance(row.value, tuple) else () if row.value is None else (row.value,)
        output.write("".join(f"{value if isinstance(value, str) else _toml(value)}\n" for value in values))
    return ExitCode.OK


def set_(
    key: Key,
    value: Annotated[str | None, Parameter(completer=completers.values)] = None,
    /,
    *,
    model: ModelName = None,
    workspace: Path | None = None,
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
    workspace
        Set it for requests from this directory only.
    unset
        Remove it from the file instead: the default applies again.
    as_json
        Print one JSON object.
    """
    file, parsed = ConfigFile(), None
    if unset == (value is not None):
        raise InvalidOptions(
            "`config set` needs either a value or --unset",
            "Give one of them: `localspec config set KEY VALUE`, or `localspec config set KEY --unset`.",
        )
    if value is None:
        place = _place_in_file(key, model, workspace)
        config = file.unset(place)
    else:
        place, setting = _place(key, model, workspace)
        parsed = _from_here(setting, value)
        config = file.set(place, parsed)
    name = _where(place)
    daemon = _daemon_runs_with()
    if as_json:
        output.json({"path": str(file.path), "key": name, "value": parsed, "daemon": daemon})
    else:
        is_now = "is no longer set" if value is None else f"is {_toml(parsed)}"
        output.note(f"{name} {is_now} in {file.path}.")
        if name == "http.without_token" and parsed:
            output.note(f"{WITHOUT_TOKEN}.")
        if place[-1] == "model" and isinstance(parsed, str):
            _tell_of_a_missing_model(parsed, config)
        if place[0] == "models":
            _tell_of_no_model(config, place[1])
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
    scratch = _scratch(file.path, before or _template())
    begun = read_toml(scratch)
    try:
        while True:
            editor.edit(scratch)
            if read_toml(scratch) == begun:
                output.note("Nothing has changed. (An editor that returns at once needs a flag to wait.)")
                scratch.unlink()
                return ExitCode.OK
            try:
                file.replace(_edited(scratch), was=before)
                break
            except InvalidOptions as error:
                _offer_again(error)
    except LocalspecError as error:
        raise _kept(error, scratch, begun) from None
    scratch.unlink()
    output.note(f"{file.path} was changed and is valid.")
    _tell_of_the_daemon(_daemon_runs_with())
    return ExitCode.OK


# Showing.


def _settled(model: str | None, workspace: Path | None) -> Settled:
    here = workspace_from_here(None if workspace is None else str(workspace))
    given = Options(model=None if model is None else absolute(model), workspace=here)
    return settle(given, place="this directory" if workspace is None else COMMAND_LINE)


def _for_no_model(config: Config) -> dict[str, str]:
    """The sections that match no model, by name, with the reason."""
    return {name: error.message for name, error in Sections(config).unresolved()}


def _tell_of_no_model(config: Config, only: str | None = None) -> None:
    for name, why in _for_no_model(config).items():
        if only in (None, name):
            output.note(f"{section_name('models', name)} matches no model: {why}")


def _tell_of_a_missing_model(name: str, config: Config) -> None:
    try:
        library.find(name, config.model_dirs)
    except ModelNotFound:
        output.note(printable(f"No model named {name!r} is on this disk now."))
    except ModelError:  # it is there, and told as broken when it is loaded
        pass


def _described(row: Effective) -> dict[str, Any]:
    setting = row.setting
    return {
        "key": setting.key,
        "value": row.value,
        "source": row.source,
        "default": setting.default,
        "takes": setting.takes,
        "meaning": setting.meaning,
    }


def _listed(settled: Settled, *, describe: bool) -> str:
    place = "" if settled.workspace is None else f", for requests from {settled.workspace}"
    lines = [f"# {config_path()}, with the values for {settled.model}{place}"]
    table = ""
    for row in settled.rows:
        if row.setting.table != table:
            table = row.setting.table
            lines += ["", f"[{table}]"]
        if describe:
            lines += ["", f"# {row.setting.meaning} ({row.setting.takes})"]
        lines.append(_line(row))
    return "\n".join(lines) + "\n"


def _line(row: Effective) -> str:
    if row.value is None:
        return f"# {row.setting.name} is not set"
    return f"{f'{row.setting.name} = {_toml(row.value)}':{COLUMN - 1}} # {row.source}"


def _toml(value: object) -> str:
    """A value in TOML, which for these settings is the same as JSON."""
    return msgspec.json.encode(value).decode()


def _template() -> str:
    """All settings with their defaults as comments, for a new file."""
    lines, table = ["# Settings of localspec. What is not set here has its default.", ""], ""
    for setting in settings():
        if setting.table != table:
            table = setting.table
            lines += ["", f"[{table}]"]
        default = "" if setting.default is None else f" {_toml(setting.default)}"
        lines.append(f"{f'# {setting.name} ={default}':{COLUMN}} # {setting.meaning}")
    for kind, example in SECTION_EXAMPLES.items():
        lines += ["", f"# {section_name(kind, example)}"]
    return "\n".join(lines) + "\n"


# The place of a setting in the file.


def _place(key: str, model: str | None, workspace: Path | None) -> tuple[Place, Setting]:
    """The place of a known setting; raises :class:`InvalidOptions`."""
    parts = _parts(key)
    if parts[0] in SECTION_EXAMPLES and len(parts) == IN_A_SECTION:
        section, setting = parts[:2], find(parts[2])
    else:
        section, setting = _section(model, workspace), find(".".join(parts))
    if section:
        if not setting.may_stand_in(section[0]):
            raise InvalidOptions(
                f"{setting.key} cannot be set for {section_name(*section)}",
                _allowed_for(setting),
            )
        return (*section, setting.name), setting
    return ((setting.table, setting.name) if setting.table else (setting.name,)), setting


def _allowed_for(setting: Setting) -> str:
    """The remedy for a setting that cannot be in the given section."""
    for kind, section in SECTION_FLAGS.items():
        if setting.may_stand_in(kind):
            return f"Set it for {section}, or for all, without a section."
    return "Set it for all, without a section."


def _place_in_file(key: str, model: str | None, workspace: Path | None) -> Place:
    """The place of a key to be removed, which may be an unknown one."""
    file = config_path()
    found: Any = parse_toml(read_toml(file), where=str(file))
    parts = _parts(key)
    for part in parts:
        found = found.get(part) if isinstance(found, dict) else None
    is_there = found is not None and (len(parts) > 1 or not isinstance(found, dict))
    return parts if is_there else _place(key, model, workspace)[0]


def _parts(key: str) -> Place:
    """The parts of a key in TOML's notation: names with dots are in quotes."""
    try:
        found: Any = parse_toml(f"{key} = 0", where="it")
    except InvalidOptions:
        raise InvalidOptions(
            f"{key[:80]!r} is not a key", "See `localspec config show` for all keys."
        ) from None
    parts: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        parts.append(name)
    if not parts or found != 0:
        raise InvalidOptions(f"{key[:80]!r} is not a key", "See `localspec config show` for all keys.")
    return tuple(parts)


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


def _section(model: str | None, workspace: Path | None) -> tuple[str, ...]:
    """The section of a model or of a directory, by the name that it already has in the file."""
    if model is not None and workspace is not None:
        raise InvalidOptions("-m and --workspace cannot be combined", "Give one of them.")
    if model is not None:
        name = absolute(model)
        return ("models", next(iter(Sections(load_config()).of_model(name)), name))
    if workspace is not None:
        place = os.path.abspath(os.path.expanduser(workspace))
        named = Sections(load_config()).directories(place)
        return ("workspaces", next((each for each in named if real(each) == real(place)), place))
    return ()


def _where(place: Place) -> str:
    *section, name = place
    return f"{name} of {section_name(*section)}" if len(section) > 1 else ".".join(place)


# The daemon.


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


# Editing.


def _scratch(path: Path, text: str) -> Path:
    """A copy to edit, beside the file; a refused edit is kept there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix="config-", suffix=".toml")
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
    except OSError as error:
        raise LocalspecError(
            f"{path.parent} cannot be written: {error.strerror}", "Make it a directory you can write to."
        ) from None
    return Path(name)


def _edited(scratch: Path) -> str:
    """The edited text; raises :class:`InvalidOptions` if it is empty, as a full disk may leave it."""
    text = read_toml(scratch)
    if not text.strip():
        raise InvalidOptions("the edited file is empty", "To return to the defaults, delete config.toml.")
    return text


def _offer_again(error: InvalidOptions) -> None:
    """Ask for another edit; raise ``error`` if the answer is no, or without a terminal."""
    if not (asking.is_possible() and sys.stderr is not None and sys.stderr.isatty()):
        raise error
    output.failure(error, as_json=False)
    try:
        is_wanted = asking.agrees("Edit it again?", otherwise=True)
    except KeyboardInterrupt:
        is_wanted = False
    if not is_wanted:
        raise error


def _kept(error: LocalspecError, scratch: Path, begun: str) -> LocalspecError:
    """``error`` with the path of the edit in its remedy; a copy without changes is deleted."""
    with contextlib.suppress(InvalidOptions):
        if read_toml(scratch) in (begun, ""):
            scratch.unlink(missing_ok=True)
            return error
    error.remedy = f"{config_path()} is as it was; your edit is kept in {scratch}. {error.remedy}"
    return error
