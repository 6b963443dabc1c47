"""``localspec config …``: what is set, where, and how to change it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from localspec.cli import answer, asking, completers, output
from localspec.cli.effective import COMMAND_LINE, Effective, Settled, settle
from localspec.cli.flags import ModelName
from localspec.cli.here import workspace_from_here
from localspec.config import (
    SECTION_EXAMPLES,
    WITHOUT_TOKEN,
    Config,
    config_path,
    load_config,
    parse_toml,
    read_toml,
    section_name,
)
from localspec.config_file import ConfigFile
from localspec.errors import DaemonUnavailable, ExitCode, InvalidOptions, LocalspecError, VersionSkew
from localspec.models.library import absolute
from localspec.models.sections import Sections, real
from localspec.origin import Place
from localspec.protocol.options import Options
from localspec.settings import Setting, find, settings
from localspec.wording import printable

AsJson = Annotated[bool, Parameter(name="--json")]
Key = Annotated[str, Parameter(completer=completers.settings)]
COLUMN = 36
"""where the sources begin"""
WHOSE = {"models": "a model with -m MODEL", "workspaces": "a directory with --workspace DIR"}
IN_A_SECTION = 3
"""names that lead to a key in one: the kind, whose it is, the key"""


def show(
    *, model: ModelName = None, workspace: Path | None = None, describe: bool = False, as_json: AsJson = False
) -> int:
    """Every setting, its value, and who says so; what is printed is a valid config.toml.

    Parameters
    ----------
    model
        As it holds for this model; otherwise for the one that answers here.
    workspace
        As it holds for requests from this directory; otherwise from here.
    describe
        Say what each means, and which values it takes.
    as_json
        Print one JSON object.
    """
    settled = _settled(model, workspace)
    if as_json:
        rows = [_described(row) for row in settled.rows]
        where = {"path": str(config_path()), "model": settled.model, "workspace": settled.workspace}
        output.json({**where, "settings": rows, "for_no_model": _for_no_model(load_config())})
    else:
        output.write(printable(_listed(settled, describe=describe)))
        _tell_of_no_model(load_config())
    return ExitCode.OK


def get(
    key: Key, /, *, model: ModelName = None, workspace: Path | None = None, as_json: AsJson = False
) -> int:
    """The value of one setting, by itself: nothing if it is not set, a line for each of a list.

    Parameters
    ----------
    key
        Such as `n_ctx` or `engine.n_ctx`; `localspec config show --describe` explains them all.
    model
        As it holds for this model; otherwise for the one that answers here.
    workspace
        As it holds for requests from this directory; otherwise from here.
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
    unset: Annotated[bool, Parameter(name=["--unset", "--default"])] = False,
    as_json: AsJson = False,
) -> int:
    """Write one setting to config.toml; comments and order stay as they are.

    Parameters
    ----------
    key
        Such as `n_ctx` or `engine.n_ctx`; `localspec config show --describe` explains them all.
    value
        What it is to be; a list as in TOML: '["one", "two"]'.
    model
        For this model alone, however it is named.
    workspace
        For requests from this directory alone.
    unset
        Take it out of the file instead: the default holds again.
    as_json
        Print one JSON object.
    """
    file, parsed = ConfigFile(), None
    if unset == (value is not None):
        raise InvalidOptions("say either a value or --unset", "See `localspec config set --help`.")
    if value is None:
        place = _place_in_file(key, model, workspace)
        config = file.unset(place)
    else:
        place, setting = _place(key, model, workspace)
        parsed = _from_here(setting, value)
        config = file.set(place, parsed)
    told = _where(place)
    daemon = _daemon_runs_with()
    if as_json:
        output.json({"path": str(file.path), "key": told, "value": parsed, "daemon": daemon})
    else:
        is_now = "is no longer set" if value is None else f"is {_toml(parsed)}"
        output.note(f"{told} {is_now} in {file.path}.")
        if told == "http.without_token" and parsed:
            output.note(f"{WITHOUT_TOKEN}.")
        if place[0] == "models":
            _tell_of_no_model(config, place[1])
        _tell_of_the_daemon(daemon)
    return ExitCode.OK


def path(*, as_json: AsJson = False) -> int:
    """Where config.toml is, whether it is there or not.

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
    """Open config.toml in your editor ($VISUAL or $EDITOR); what is not valid is never used."""
    from localspec.cli import editor

    file = ConfigFile()
    before = read_toml(file.path)
    scratch = _scratch(file.path, before or _template())
    begun = read_toml(scratch)
    try:
        while True:
            editor.edit(scratch)
            if read_toml(scratch) == begun:
                output.note("Nothing has changed. (An editor that returns at once must be told to wait.)")
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
    output.note(f"{file.path} is valid, and changed.")
    _tell_of_the_daemon(_daemon_runs_with())
    return ExitCode.OK


# Showing.


def _settled(model: str | None, workspace: Path | None) -> Settled:
    here = workspace_from_here(None if workspace is None else str(workspace))
    said = Options(model=None if model is None else absolute(model), workspace=here)
    return settle(said, place="this directory" if workspace is None else COMMAND_LINE)


def _for_no_model(config: Config) -> dict[str, str]:
    """The sections of models that hold for none, by their names, and why."""
    return {name: error.message for name, error in Sections(config).unresolved()}


def _tell_of_no_model(config: Config, only: str | None = None) -> None:
    for name, why in _for_no_model(config).items():
        if only in (None, name):
            output.note(f"{section_name('models', name)} is for no model: {why}")


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
    place = "" if settled.workspace is None else f", asked from {settled.workspace}"
    lines = [f"# {config_path()}, as it holds for {settled.model}{place}"]
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
    """A value as TOML has it, which for ours is as JSON has it."""
    return msgspec.json.encode(value).decode()


def _template() -> str:
    """All settings with their defaults, as comments, for who begins a file."""
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


# Where a setting stands in the file.


def _place(key: str, model: str | None, workspace: Path | None) -> tuple[Place, Setting]:
    """The place of a setting that there is; raises :class:`InvalidOptions`."""
    parts = _parts(key)
    if parts[0] in SECTION_EXAMPLES and len(parts) == IN_A_SECTION:
        section, setting = parts[:2], find(parts[2])
    else:
        section, setting = _section(model, workspace), find(".".join(parts))
    if section:
        if not setting.may_stand_in(section[0]):
            raise InvalidOptions(
                f"{setting.key} cannot be set for {section_name(*section)}",
                _whose(setting),
            )
        return (*section, setting.name), setting
    return ((setting.table, setting.name) if setting.table else (setting.name,)), setting


def _whose(setting: Setting) -> str:
    """Where a setting can stand that has no place in the section that was asked for."""
    for kind, section in WHOSE.items():
        if setting.may_stand_in(kind):
            return f"It can be set for {section}, or for all: leave the section out."
    return "It holds for all: leave the section out."


def _place_in_file(key: str, model: str | None, workspace: Path | None) -> Place:
    """The place of a key that is to go, which may be one that nobody knows."""
    file = config_path()
    found: Any = parse_toml(read_toml(file), where=str(file))
    parts = _parts(key)
    for part in parts:
        found = found.get(part) if isinstance(found, dict) else None
    is_there = found is not None and (len(parts) > 1 or not isinstance(found, dict))
    return parts if is_there else _place(key, model, workspace)[0]


def _parts(key: str) -> Place:
    """A key as TOML reads it: names with dots stand in quotes."""
    try:
        found: Any = parse_toml(f"{key} = 0", where="it")
    except InvalidOptions:
        raise InvalidOptions(f"{key[:80]!r} is no key", "See `localspec config show`.") from None
    parts: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        parts.append(name)
    if not parts or found != 0:
        raise InvalidOptions(f"{key[:80]!r} is no key", "See `localspec config show`.")
    return tuple(parts)


def _from_here(setting: Setting, text: str) -> Any:
    """The value that was typed, its paths absolute: the daemon reads them in a directory of its own."""
    if setting.name in ("model", "draft"):
        text = absolute(text)
    value = setting.parse(text)
    if setting.name == "model_dirs":
        return tuple(each if each.startswith("~") else os.path.abspath(each) for each in value)
    if setting.name == "workspace" and value:
        return os.path.abspath(os.path.expanduser(value))
    return value


def _section(model: str | None, workspace: Path | None) -> tuple[str, ...]:
    """The section of a model or of a directory, by the name that it has in the file already."""
    if model is not None and workspace is not None:
        raise InvalidOptions("a section is for a model or for a workspace", "Give one of them.")
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
    """``none``: there is no daemon; ``current``: one with these settings; ``stale``: one with others."""
    try:
        running = answer.remote(lambda client: client.status(), start=False)
    except VersionSkew:
        return "stale"
    except DaemonUnavailable:
        return "none"
    return "current" if running.settings == "current" else "stale"


def _tell_of_the_daemon(daemon: str) -> None:
    if daemon == "stale":
        output.note(
            "The daemon runs with other settings; the next command that asks it replaces one that is idle."
        )


# Editing.


def _scratch(path: Path, text: str) -> Path:
    """A copy to edit, beside the file: what is refused stays there."""
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
    """What was written; raises :class:`InvalidOptions` for nothing, as an editor leaves that had no room."""
    text = read_toml(scratch)
    if not text.strip():
        raise InvalidOptions("the edited file is empty", "To have all defaults again, delete config.toml.")
    return text


def _offer_again(error: InvalidOptions) -> None:
    """Returns if it is to be edited again; raises ``error`` where not, or where nobody can be asked."""
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
    """``error``, which tells where the edit is; one that is none is deleted."""
    with contextlib.suppress(InvalidOptions):
        if read_toml(scratch) in (begun, ""):
            scratch.unlink(missing_ok=True)
            return error
    error.remedy = f"{config_path()} is as it was; your edit is kept in {scratch}. {error.remedy}"
    return error
